import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { type ApiError, post } from '../api.ts'
import { Form, refuse, TextField, useFields } from '../parts/form.tsx'
import { Mark } from '../parts/icons.tsx'
import { fill, type Texts, useLocalized } from '../texts.ts'

/** Sign-in by address and password, or by CONSOLE_TOKEN. */
export function SignInPage({
  hasEnded,
  accepts,
  onSignIn,
  languages,
}: {
  hasEnded: boolean
  accepts: { token: boolean; password: boolean }
  onSignIn: () => void
  languages: preact.JSX.Element
}) {
  const { t } = useLocalized()
  const { values, setValues, field } = useFields({ email: '', secret: '' })
  const [isByToken, setByToken] = useState(!accepts.password)
  const { email, secret } = values
  const wrong = isByToken ? t.signIn.wrong : t.signIn.wrongPassword
  const given = isByToken ? { token: secret.trim() } : { email: email.trim(), password: secret }
  const signIn = () =>
    post<void>('/sign-in', given).then(onSignIn, (error) => refuse('secret', explain(error, wrong, t)))
  return (
    <SignInFrame
      title={t.signIn.title}
      lead={hasEnded ? t.signIn.ended : isByToken ? t.signIn.leadToken : t.signIn.lead}
      languages={languages}
    >
      <Form key={String(isByToken)} submit={t.signIn.submit} onSubmit={signIn}>
        {isByToken ? (
          // Password managers want a user name.
          <input type="text" autocomplete="username" value="token" readOnly hidden />
        ) : (
          <TextField
            {...field('email')}
            label={t.signIn.email}
            type="email"
            autocomplete="username"
            required
            autofocus
          />
        )}
        <TextField
          {...field('secret')}
          label={isByToken ? t.signIn.token : t.signIn.password}
          type="password"
          autocomplete="current-password"
          required
          autofocus={isByToken}
        />
        {accepts.token && accepts.password && (
          <button
            type="button"
            class="link"
            onClick={() => {
              setByToken(!isByToken)
              setValues({ email, secret: '' })
            }}
          >
            {isByToken ? t.signIn.withPassword : t.signIn.withToken}
          </button>
        )}
      </Form>
    </SignInFrame>
  )
}

/** The frame of the pages that need no session. */
export function SignInFrame({
  title,
  lead,
  languages,
  children,
}: {
  title: string
  lead: string
  languages: preact.JSX.Element
  children: ComponentChildren
}) {
  const { t } = useLocalized()
  useEffect(() => {
    document.title = `${title} · ${t.product}`
  }, [title, t])
  return (
    <main class="sign-in">
      <div class="panel">
        <Mark />
        <h1>{title}</h1>
        <p class="muted">{lead}</p>
        {children}
      </div>
      {languages}
    </main>
  )
}

/** @param wrong the text for credentials that are not accepted */
export function explain({ status, message, retryAfterSeconds }: ApiError, wrong: string, t: Texts): string {
  switch (status) {
    case 401:
    case 404:
      return wrong
    case 403:
      return t.signIn.foreign
    case 429:
      return fill(t.signIn.limited, { seconds: String(retryAfterSeconds) })
    default:
      return message || t.failure.offline
  }
}
