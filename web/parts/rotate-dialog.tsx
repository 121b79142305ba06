import { useState } from 'preact/hooks'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { Form } from './form.tsx'
import { SecretOnce } from './secret-once.tsx'

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
  const { t } = useLocalized()
  const [secret, setSecret] = useState<string | null>(null)
  return (
    <Dialog title={secret === null ? title : rotated} onClose={onClose}>
      {secret === null ? (
        <Form submit={title} onSubmit={async () => setSecret(await rotate())} onCancel={onClose}>
          <p>{text}</p>
        </Form>
      ) : (
        <>
          <SecretOnce label={label} secret={secret} />
          <p>{text}</p>
          <footer class="actions">
            <button type="button" class="primary" onClick={onClose}>
              {t.common.close}
            </button>
          </footer>
        </>
      )}
    </Dialog>
  )
}
