/** The page of an invitation link, where an operator chooses a password. */
import { useEffect, useState } from 'preact/hooks'
import { type ApiError, post } from '../api.ts'
import { navigate } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'
import { explain, SignInForm, useSignIn } from './sign-in.tsx'

const PASSWORD_MIN_LENGTH = 12

export function InvitationPage({
  onSignIn,
  languages,
}: {
  onSignIn: () => void
  languages: preact.JSX.Element
}) {
  const { t } = useLocalized()
  // Servers and proxies do not see the part after #, so their logs do not contain it.
  const invitation = location.hash.slice(1)
  const [email, setEmail] = useState('')
  const [refusal, setRefusal] = useState<ApiError | null>(null)
  const [password, setPassword] = useState('')
  const [repeated, setRepeated] = useState('')
  useEffect(() => {
    post<{ email: string }>('/invitation', { invitation }).then((found) => setEmail(found.email), setRefusal)
  }, [invitation])
  const request = useSignIn(() =>
    post('/invitation/accept', { invitation, password }).then(() => {
      onSignIn()
      navigate('/')
    }),
  )
  const isRepeated = password === repeated
  if (refusal !== null) {
    return (
      <main class="sign-in">
        <div class="panel">
          <h1>{t.invitation.invalid}</h1>
          <p>{refusal.status === 404 ? t.invitation.invalidHelp : refusal.message || t.failure.offline}</p>
          <a class="button" href="/">
            {t.signIn.title}
          </a>
        </div>
        {languages}
      </main>
    )
  }
  return (
    <SignInForm
      title={t.invitation.title}
      lead={fill(t.invitation.lead, { email })}
      submit={t.invitation.submit}
      problem={
        request.error?.status === 400
          ? t.invitation.weak
          : isRepeated || repeated === ''
            ? explain(request, t.invitation.invalidHelp, t)
            : t.invitation.different
      }
      request={{
        ...request,
        run: () => {
          if (isRepeated) request.run()
        },
      }}
      languages={languages}
    >
      <input type="text" autocomplete="username" value={email} readOnly hidden />
      <label for="password">{t.invitation.password}</label>
      <input
        id="password"
        type="password"
        autocomplete="new-password"
        minLength={PASSWORD_MIN_LENGTH}
        required
        autofocus
        aria-describedby="password-hint sign-in-error"
        value={password}
        onInput={(event) => {
          setPassword(event.currentTarget.value)
          request.forget()
        }}
      />
      <p id="password-hint" class="muted">
        {fill(t.invitation.hint, { characters: String(PASSWORD_MIN_LENGTH) })}
      </p>
      <label for="repeated">{t.invitation.repeat}</label>
      <input
        id="repeated"
        type="password"
        autocomplete="new-password"
        required
        aria-invalid={!isRepeated && repeated !== ''}
        aria-describedby="sign-in-error"
        value={repeated}
        onInput={(event) => setRepeated(event.currentTarget.value)}
      />
    </SignInForm>
  )
}
