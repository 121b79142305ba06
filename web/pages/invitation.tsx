/** The page of an invitation link, where an operator chooses a password. */
import { useEffect, useState } from 'preact/hooks'
import { type ApiError, post } from '../api.ts'
import { Form, refuse, TextField, useFields } from '../parts/form.tsx'
import { navigate } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'
import { explain, SignInFrame } from './sign-in.tsx'

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
  const { values, field } = useFields({ password: '', repeated: '' })
  useEffect(() => {
    post<{ email: string }>('/invitation', { invitation }).then((found) => setEmail(found.email), setRefusal)
  }, [invitation])
  const accept = async () => {
    const { password, repeated } = values
    if (password !== repeated) refuse('repeated', t.invitation.different)
    await post('/invitation/accept', { invitation, password }).catch((error: ApiError) =>
      refuse(
        'password',
        error.status === 400 ? t.invitation.weak : explain(error, t.invitation.invalidHelp, t),
      ),
    )
    onSignIn()
    navigate('/')
  }
  if (refusal !== null) {
    return (
      <SignInFrame
        title={t.invitation.invalid}
        lead={explain(refusal, t.invitation.invalidHelp, t)}
        languages={languages}
      >
        <a class="button" href="/">
          {t.signIn.title}
        </a>
      </SignInFrame>
    )
  }
  return (
    <SignInFrame title={t.invitation.title} lead={fill(t.invitation.lead, { email })} languages={languages}>
      <Form submit={t.invitation.submit} onSubmit={accept}>
        <input type="text" autocomplete="username" value={email} readOnly hidden />
        <TextField
          {...field('password')}
          label={t.invitation.password}
          hint={fill(t.invitation.hint, { characters: String(PASSWORD_MIN_LENGTH) })}
          type="password"
          autocomplete="new-password"
          minLength={PASSWORD_MIN_LENGTH}
          required
          autofocus
        />
        <TextField
          {...field('repeated')}
          label={t.invitation.repeat}
          type="password"
          autocomplete="new-password"
          required
        />
      </Form>
    </SignInFrame>
  )
}
