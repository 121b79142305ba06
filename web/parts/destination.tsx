/** What endpoints and notification channels share: an address with its settings, a test, an addition and a removal. */
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { Link } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { CloseFooter, Dialog, SecretDialog } from './dialog.tsx'
import { CheckField, type FieldProps, TextField } from './form.tsx'
import { ActionFailure } from './states.tsx'

/** The service shows an address in part only. It is kept if its field stays empty. */
const HIDDEN = '…'
export const isHidden = (address: string): boolean => address.includes(HIDDEN)

interface Bound<Value> {
  name: string
  value: Value
  onChange: (value: Value) => void
}

export function DestinationFields({
  address,
  name,
  privateNetwork,
  children,
}: {
  address: Bound<string> & FieldProps & { type?: 'url' | 'email'; required: boolean }
  name: Bound<string>
  /** null: it may not reach one */
  privateNetwork: Bound<boolean> | null
  /** further fields */
  children?: ComponentChildren
}) {
  const { t } = useLocalized()
  return (
    <>
      <TextField type="url" {...address} maxLength={2048} autocomplete="off" />
      <TextField {...name} label={t.endpoints.name} maxLength={256} autocomplete="off" />
      {children}
      {privateNetwork && (
        <CheckField {...privateNetwork} label={t.endpoints.privateNetwork} hint={t.endpoints.privateHint} />
      )}
    </>
  )
}

/** @param texts of the kind of destination */
export function AddedDestination({
  texts,
  secret,
  href,
  onClose,
}: {
  texts: { added: string; addedText: string; open: string }
  secret: string | null
  href: string
  onClose: () => void
}) {
  const { t } = useLocalized()
  const next = (
    <Link class={secret === null ? 'button primary' : 'button'} href={href}>
      {texts.open}
    </Link>
  )
  if (secret !== null)
    return (
      <SecretDialog
        title={texts.added}
        secrets={[{ label: t.endpoints.secret, secret }]}
        onClose={onClose}
        next={next}
      >
        <p>{texts.addedText}</p>
      </SecretDialog>
    )
  return (
    <Dialog title={texts.added} onClose={onClose}>
      <p>{texts.addedText}</p>
      <CloseFooter onClose={onClose} next={next} />
    </Dialog>
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
        isPrimary
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
