/** What endpoints and notification channels share: an address that may be hidden, an addition, a test and its response. */
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { navigate } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { CloseFooter, Dialog, SecretDialog } from './dialog.tsx'
import { ActionFailure } from './states.tsx'

export const URL_MAX_LENGTH = 2048

/** The service shows an address in part only. It is kept if its field stays empty. */
const HIDDEN = '…'
export const isHidden = (address: string): boolean => address.includes(HIDDEN)

/** Shows the secret of an added destination, and then its page. */
export function AddedDestination({
  texts,
  secret,
  href,
}: {
  texts: { added: string; addedText: string }
  secret: string
  href: string
}) {
  const { t } = useLocalized()
  return (
    <SecretDialog
      title={texts.added}
      secrets={[{ label: t.endpoints.secret, secret }]}
      onClose={() => navigate(href)}
    >
      <p>{texts.addedText}</p>
    </SecretDialog>
  )
}

/** Sends a test as soon as it opens. It can be repeated. */
export function TestDialog<Result>({
  title,
  send: test,
  intro,
  onClose,
  children,
}: {
  title: string
  send: () => Promise<Result>
  intro?: string
  onClose: () => void
  children: (result: Result) => ComponentChildren
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [result, setResult] = useState<Result | null>(null)
  const send = () =>
    run(async () => {
      setResult(null)
      setResult(await test())
    })
  useEffect(send, [])
  return (
    <Dialog title={title} onClose={onClose} isWide>
      {intro !== undefined && <p class="muted">{intro}</p>}
      <p role="status">{isRunning ? t.endpoints.testing : ''}</p>
      <ActionFailure error={error} />
      {result !== null && children(result)}
      <CloseFooter
        onClose={onClose}
        next={
          <button type="button" disabled={isRunning} onClick={send}>
            {t.endpoints.testAgain}
          </button>
        }
      />
    </Dialog>
  )
}

interface ResponseProps {
  wasAccepted: boolean
  status: number | null
  children?: ComponentChildren
}

/** The status of a response, and what is known of it. */
export function ResponseTag({ wasAccepted, status, children }: ResponseProps) {
  const { t } = useLocalized()
  return (
    <>
      <span class={`tag ${wasAccepted ? 'good' : 'bad'}`}>{status ?? t.endpoints.noResponse}</span> {children}
    </>
  )
}
