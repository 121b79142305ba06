/** The rotation of a secret: it begins with a new one, and ends with the new or the previous one alone. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { post } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { SecretDialog } from './dialog.tsx'
import { FormDialog } from './form.tsx'

/** @param change the settings that the owner of the secret has beside it */
export function SettingsActions({
  path,
  of,
  secretName,
  isRotating,
  canRotate,
  changeLabel,
  change,
  onChange,
}: {
  path: string
  of: 'endpoints' | 'clients'
  /** the field of the response */
  secretName: 'secret' | 'clientSecret'
  isRotating: boolean
  canRotate: boolean
  changeLabel: string
  change: (close: () => void, onDone: () => void) => ComponentChildren
  onChange: () => void
}) {
  const { t } = useLocalized()
  const texts = t[of]
  const { [secretName]: label = '' } = texts as Partial<Record<typeof secretName, string>>
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
    await post(`${path}/${how}-rotation`)
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
      <button type="button" onClick={() => setOpen('change')}>
        {changeLabel}
      </button>
      {open === 'change' &&
        change(close, () => finish(of === 'clients' ? t.clients.expirySaved : t.endpoints.saved))}
      {open === 'rotate' && (
        <RotateDialog path={path} texts={texts} label={label} secretName={secretName} onClose={close} />
      )}
      {(open === 'finish' || open === 'discard') && (
        <FormDialog title={texts[open]} submit={texts[open]} onSubmit={() => end(open)} onClose={close}>
          <p>{texts[`${open}Text`]}</p>
        </FormDialog>
      )}
    </>
  )
}

/** Replaces a secret, and shows the new one once. */
function RotateDialog({
  path,
  texts: { rotate: title, rotated, rotateText },
  label,
  secretName,
  onClose,
}: {
  path: string
  texts: { rotate: string; rotated: string; rotateText: string }
  label: string
  secretName: string
  onClose: () => void
}) {
  const [secret, setSecret] = useState<string | null>(null)
  const rotate = async () => {
    const { [secretName]: added = '' } = await post<Record<string, string>>(`${path}/rotate`)
    setSecret(added)
  }
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
