import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { type ApiError, post } from '../api.ts'
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
  const [email, setEmail] = useState('')
  const [secret, setSecret] = useState('')
  const [isByToken, setByToken] = useState(!accepts.password)
  const request = useSignIn(() =>
    post('/sign-in', isByToken ? { token: secret.trim() } : { email: email.trim(), password: secret }).then(
      onSignIn,
    ),
  )
  const secretField = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (request.error !== null) secretField.current?.select()
  }, [request.error])
  const wrong = isByToken ? t.signIn.wrong : t.signIn.wrongPassword
  return (
    <SignInForm
      title={t.signIn.title}
      lead={hasEnded ? t.signIn.ended : isByToken ? t.signIn.leadToken : t.signIn.lead}
      submit={t.signIn.submit}
      problem={explain(request, wrong, t)}
      request={request}
      languages={languages}
    >
      {isByToken ? (
        // Password managers want a user name.
        <input type="text" autocomplete="username" value="token" readOnly hidden />
      ) : (
        <>
          <label for="email">{t.signIn.email}</label>
          <input
            id="email"
            type="email"
            autocomplete="username"
            required
            autofocus
            value={email}
            onInput={(event) => setEmail(event.currentTarget.value)}
          />
        </>
      )}
      <label for="secret">{isByToken ? t.signIn.token : t.signIn.password}</label>
      <input
        key={String(isByToken)}
        id="secret"
        ref={secretField}
        type="password"
        autocomplete="current-password"
        required
        autofocus={isByToken}
        aria-invalid={request.error !== null}
        aria-describedby="sign-in-error"
        value={secret}
        onInput={(event) => setSecret(event.currentTarget.value)}
      />
      {accepts.token && accepts.password && (
        <button
          type="button"
          class="link"
          onClick={() => {
            setByToken(!isByToken)
            setSecret('')
            request.forget()
          }}
        >
          {isByToken ? t.signIn.withPassword : t.signIn.withToken}
        </button>
      )}
    </SignInForm>
  )
}

/** The frame of the pages that need no session. */
export function SignInForm({
  title,
  lead,
  submit,
  problem,
  request: { isRunning, waitSeconds, run },
  languages,
  children,
}: {
  title: string
  lead: string
  submit: string
  problem: string
  request: SignInRequest
  languages: preact.JSX.Element
  children: ComponentChildren
}) {
  const { t } = useLocalized()
  useEffect(() => {
    document.title = `${title} · ${t.product}`
  }, [title, t])
  return (
    <main class="sign-in">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault()
          run()
        }}
      >
        <Mark />
        <h1>{title}</h1>
        <p class="muted">{lead}</p>
        {children}
        <p id="sign-in-error" class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class="primary" disabled={isRunning || waitSeconds > 0}>
          {submit}
        </button>
      </form>
      {languages}
    </main>
  )
}

interface SignInRequest {
  isRunning: boolean
  error: ApiError | null
  /** seconds until the service accepts another attempt */
  waitSeconds: number
  run: () => void
  forget: () => void
}

export function useSignIn(send: () => Promise<unknown>): SignInRequest {
  const [error, setError] = useState<ApiError | null>(null)
  const [isRunning, setRunning] = useState(false)
  const waitSeconds = useCountdown(error)
  const run = () => {
    setRunning(true)
    send().then(
      () => setRunning(false),
      (failure: ApiError) => {
        setError(failure)
        setRunning(false)
      },
    )
  }
  return { isRunning, error, waitSeconds, run, forget: () => setError(null) }
}

/** @param wrong the text for credentials that are not accepted */
export function explain({ error, waitSeconds }: SignInRequest, wrong: string, t: Texts): string {
  if (error === null) return ''
  switch (error.status) {
    case 401:
    case 404:
      return wrong
    case 403:
      return t.signIn.foreign
    case 429:
      return waitSeconds > 0 ? fill(t.signIn.limited, { seconds: String(waitSeconds) }) : ''
    default:
      return error.message || t.failure.offline
  }
}

function useCountdown(error: ApiError | null): number {
  const [seconds, setSeconds] = useState(0)
  useEffect(() => {
    setSeconds(error?.retryAfterSeconds ?? 0)
    const timer = setInterval(() => setSeconds((left) => Math.max(0, left - 1)), 1_000)
    return () => clearInterval(timer)
  }, [error])
  return seconds
}
