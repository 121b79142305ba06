/** The rotation of a secret: it begins with a new one, and ends with the new or the previous one alone. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { perform } from '../operations.ts'
import { useLocalized } from '../texts.ts'
import { SecretDialog } from './dialog.tsx'
import { FormDialog } from './form.tsx'

/** @param change the settings that the owner of the secret has beside it, if any */
export function SettingsActions({
  of,
  id,
  isRotating,
  canRotate,
  changeLabel,
  change,
  onChange,
}: {
  of: 'endpoint' | 'client'
  id: string
  isRotating: boolean
  canRotate: boolean
  changeLabel?: string
  change?: (close: () => void, onDone: () => void) => ComponentChildren
  onChange: () => void
}) {
  const { t } = useLocalized()
  const texts = t[`${of}s`]
  // The list of actions changes as soon as the rotation begins, and the dialog with the secret must stay open.
  const [open, setOpen] = useState<'change' | 'rotate' | 'finish' | 'discard' | null>(null)
  const [message, setMessage] = useState('')
  const finish = (text: string) => {
    setOpen(null)
    setMessage(text)
    onChange()
  }
  const close = () => finish('')
  const end = async (how: 'finish' | 'discard') => {
    await perform(`${of}.${how}-rotation`, id)
    finish(how === 'finish' ? texts.finished : texts.discarded)
  }
  return (
    <>
      <span role="status" class="muted small-text">
        {message}
      </span>
      {(canRotate || isRotating) && (
        <button type="button" onClick={() => setOpen(isRotating ? 'finish' : 'rotate')}>
          {isRotating ? texts.finish : texts.rotate}
        </button>
      )}
      {isRotating && (
        <button type="button" onClick={() => setOpen('discard')}>
          {texts.discard}
        </button>
      )}
      {changeLabel && (
        <button type="button" onClick={() => setOpen('change')}>
          {changeLabel}
        </button>
      )}
      {open === 'change' && change?.(close, () => finish(t.endpoints.saved))}
      {open === 'rotate' && <RotateDialog {...{ of, id }} onClose={close} />}
      {(open === 'finish' || open === 'discard') && (
        <FormDialog title={texts[open]} submit={texts[open]} onSubmit={() => end(open)} onClose={close}>
          <p>{texts[`${open}Text`]}</p>
        </FormDialog>
      )}
    </>
  )
}

/** Replaces a secret, and shows the new one once. */
function RotateDialog({ of, id, onClose }: { of: 'endpoint' | 'client'; id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { rotate: title, rotated, rotateText } = t[`${of}s`]
  const [secret, setSecret] = useState<string | null>(null)
  const rotate = async () =>
    setSecret(
      of === 'client'
        ? (await perform('client.rotate', id)).clientSecret
        : (await perform('endpoint.rotate', id)).secret,
    )
  const label = of === 'client' ? t.clients.clientSecret : t.endpoints.secret
  if (secret !== null)
    return (
      <SecretDialog title={rotated} secrets={[{ label, secret }]} onClose={onClose}>
        <p>{rotateText}</p>
      </SecretDialog>
    )
  return (
    <FormDialog title={title} submit={title} onSubmit={rotate} onClose={onClose}>
      <p>{rotateText}</p>
    </FormDialog>
  )
}
