/** A modal dialog of the browser. It traps the focus, closes with Escape and returns the focus. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { mayLeave } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { Icon } from './icons.tsx'
import { Copyable } from './values.tsx'

export function Dialog({
  title,
  onClose,
  children,
  isWide = false,
  isKept = false,
}: {
  title: string
  onClose: () => void
  children: ComponentChildren
  isWide?: boolean
  /** only its own buttons close it */
  isKept?: boolean
}) {
  const { t } = useLocalized()
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useRef<HTMLHeadingElement>(null)
  const id = useId()
  useEffect(() => {
    dialog.current?.showModal()
  }, [])
  // The browser would focus the close button, so that a space closes the dialog. The focus is set again if the title changes,
  // because the focused element may be gone.
  useEffect(() => {
    const field = dialog.current?.querySelector<HTMLElement>('input, select, textarea')
    const target = field ?? heading.current
    target?.focus()
  }, [title])
  return (
    <dialog
      ref={dialog}
      class={isWide ? 'wide' : ''}
      aria-labelledby={id}
      onCancel={(event) => (isKept || !mayLeave(event.currentTarget)) && event.preventDefault()}
      // Browsers do not let a page prevent a second Escape.
      onClose={() => (isKept ? dialog.current?.showModal() : onClose())}
    >
      <header>
        <h2 id={id} ref={heading} tabIndex={-1}>
          {title}
        </h2>
        {!isKept && (
          <button
            type="button"
            class="plain"
            aria-label={t.common.close}
            onClick={() => dialog.current && mayLeave(dialog.current) && dialog.current.close()}
          >
            <Icon name="cross" />
          </button>
        )}
      </header>
      {children}
    </dialog>
  )
}

/** @param next beside the button that closes the dialog */
export function CloseFooter({ onClose, next }: { onClose: () => void; next?: ComponentChildren }) {
  const { t } = useLocalized()
  return (
    <footer class="actions">
      {next}
      <button type="button" onClick={onClose}>
        {t.common.close}
      </button>
    </footer>
  )
}

/** A button that opens a dialog. */
export function DialogButton({
  label,
  class: name,
  isDisabled,
  describedBy,
  onClosed,
  children,
}: {
  label: ComponentChildren
  class?: string
  isDisabled?: boolean
  /** for a label that many buttons of a page have */
  describedBy?: string
  onClosed?: () => void
  children: (close: () => void) => ComponentChildren
}) {
  const [isOpen, setOpen] = useState(false)
  const close = () => {
    setOpen(false)
    onClosed?.()
  }
  return (
    <>
      <button
        type="button"
        class={name}
        disabled={isDisabled}
        aria-label={describedBy}
        onClick={() => setOpen(true)}
      >
        {label}
      </button>
      {isOpen && children(close)}
    </>
  )
}

/** Shows secrets once. Only an operator who says that they are stored closes it. */
export function SecretDialog({
  title,
  secrets,
  onClose,
  children,
}: {
  title: string
  secrets: Array<{ label: string; secret: string }>
  onClose: () => void
  children?: ComponentChildren
}) {
  const { t } = useLocalized()
  return (
    <Dialog title={title} onClose={onClose} isKept>
      <p class="notice warning">{t.clients.secretOnce}</p>
      {secrets.map(({ label, secret }) => (
        <section key={label}>
          <h3>{label}</h3>
          <Copyable text={secret} label={label} />
        </section>
      ))}
      {children}
      <footer class="actions">
        <button type="button" class="primary" onClick={onClose}>
          {t.common.stored}
        </button>
      </footer>
    </Dialog>
  )
}
