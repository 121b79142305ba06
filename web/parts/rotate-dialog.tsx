/** The begin and both ends of a rotation. */
import { useState } from 'preact/hooks'
import { post } from '../api.ts'
import { Dialog } from './dialog.tsx'
import { Form } from './form.tsx'
import { SecretDialog } from './secret-once.tsx'

interface RotateDialogProps {
  title: string
  /** title once the secret is replaced */
  rotated: string
  text: string
  /** name of the secret */
  label: string
  /** returns the new secret */
  rotate: () => Promise<string>
  onClose: () => void
}

/** Replaces a secret, and shows the new one once. */
export function RotateDialog({ title, rotated, text, label, rotate, onClose }: RotateDialogProps) {
  const [secret, setSecret] = useState<string | null>(null)
  if (secret !== null)
    return (
      <SecretDialog title={rotated} secrets={[{ label, secret }]} onClose={onClose}>
        <p>{text}</p>
      </SecretDialog>
    )
  return (
    <Dialog title={title} onClose={onClose}>
      <Form submit={title} onSubmit={async () => setSecret(await rotate())} onCancel={onClose}>
        <p>{text}</p>
      </Form>
    </Dialog>
  )
}

interface EndRotationProps {
  /** of the request that finishes or discards it */
  path: string
  title: string
  text: string
  onClose: () => void
  onDone: () => void
}

/** Keeps the new secret alone, or the previous one. */
export function EndRotation({ path, title, text, onClose, onDone }: EndRotationProps) {
  const end = async () => {
    await post(path)
    onDone()
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <Form submit={title} onSubmit={end} onCancel={onClose}>
        <p>{text}</p>
      </Form>
    </Dialog>
  )
}
