/** Secrets that the service shows only now. */
import type { ComponentChildren } from 'preact'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { Copyable } from './values.tsx'

/** Asks before it closes, unless the operator says that the secret is stored. */
export function SecretDialog({
  title,
  secrets,
  onClose,
  children,
  next,
}: {
  title: string
  secrets: Array<{ label: string; secret: string }>
  onClose: () => void
  children?: ComponentChildren
  /** a link to what was added */
  next?: ComponentChildren
}) {
  const { t } = useLocalized()
  return (
    <Dialog title={title} onClose={onClose} question={t.common.closeUnstored}>
      <p class="notice warning">{t.clients.secretOnce}</p>
      {secrets.map(({ label, secret }) => (
        <section key={label}>
          <h3>{label}</h3>
          <Copyable text={secret} label={label} />
        </section>
      ))}
      {children}
      <footer class="actions">
        {next}
        <button type="button" class="primary" onClick={onClose}>
          {t.common.stored}
        </button>
      </footer>
    </Dialog>
  )
}
