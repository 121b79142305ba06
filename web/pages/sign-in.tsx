import { useEffect, useRef, useState } from 'preact/hooks'
import { type ApiError, post } from '../api.ts'
import { Mark } from '../parts/icons.tsx'
import { rememberSession } from '../session.ts'
import { useLocalized } from '../texts.ts'

export function SignInPage({
  hasEnded,
  onSignIn,
  languages,
}: {
  hasEnded: boolean
  onSignIn: () => void
  languages: preact.JSX.Element
}) {
  const { t } = useLocalized()
  const [error, setError] = useState<ApiError | null>(null)
  const [isRunning, setRunning] = useState(false)
  const waitSeconds = useCountdown(error)
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    document.title = `${t.signIn.title} · ${t.product}`
  }, [t])
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    setRunning(true)
    const token = field.current?.value.trim() ?? ''
    post<{ endsAt: string }>('/sign-in', { token }).then(
      ({ endsAt }) => {
        rememberSession(endsAt)
        onSignIn()
      },
      (failure: ApiError) => {
        setError(failure)
        setRunning(false)
        field.current?.select()
      },
    )
  }
  return (
    <main class="sign-in">
      <form class="panel" onSubmit={submit}>
        <Mark />
        <h1>{t.signIn.title}</h1>
        <p class="muted">{hasEnded ? t.signIn.ended : t.signIn.lead}</p>
        {/* Password managers want a user name. */}
        <input type="text" autocomplete="username" value="operator" readOnly hidden />
        <label for="token">{t.signIn.token}</label>
        <input
          ref={field}
          id="token"
          type="password"
          autocomplete="current-password"
          required
          autofocus
          aria-invalid={error !== null}
          aria-describedby="sign-in-error"
        />
        <p id="sign-in-error" class="problem" role="alert">
          {error !== null && explain(error, waitSeconds, t)}
        </p>
        <button type="submit" class="primary" disabled={isRunning || waitSeconds > 0}>
          {t.signIn.submit}
        </button>
      </form>
      {languages}
    </main>
  )
}

function explain(
  { status, message }: ApiError,
  waitSeconds: number,
  t: ReturnType<typeof useLocalized>['t'],
): string {
  switch (status) {
    case 401:
      return t.signIn.wrong
    case 403:
      return t.signIn.foreign
    case 429:
      return waitSeconds > 0 ? t.signIn.limited(String(waitSeconds)) : ''
    default:
      return message || t.failure.offline
  }
}

/** Counts down the seconds until the service accepts another attempt. */
function useCountdown(error: ApiError | null): number {
  const [seconds, setSeconds] = useState(0)
  useEffect(() => {
    setSeconds(error?.retryAfterSeconds ?? 0)
    const timer = setInterval(() => setSeconds((left) => Math.max(0, left - 1)), 1_000)
    return () => clearInterval(timer)
  }, [error])
  return seconds
}
