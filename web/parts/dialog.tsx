/** A modal dialog of the browser. It traps the focus, closes with Escape and returns the focus. One with a secret asks before it closes. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { navigate } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { Icon } from './icons.tsx'
import { ActionFailure } from './states.tsx'
import { Copyable } from './values.tsx'

export function Dialog({
  title,
  onClose,
  children,
  isWide = false,
  question,
}: {
  title: string
  onClose: () => void
  children: ComponentChildren
  isWide?: boolean
  /** asked before the dialog closes in any way but by onClose */
  question?: string
}) {
  const { t } = useLocalized()
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useRef<HTMLHeadingElement>(null)
  const id = useId()
  /** What follows if the question is answered by yes. Null: it is not asked. */
  const [leave, setLeave] = useState<(() => void) | null>(null)
  const ask = (action: () => void) => setLeave(() => action)
  const isConfirmed = useRef(false)
  const close = () => {
    isConfirmed.current = true
    dialog.current?.close()
  }
  useEffect(() => {
    dialog.current?.showModal()
  }, [])
  // The browser would focus the close button, so that a space discards a secret that is shown once. The focus is set again if the
  // title changes, because the focused element may be gone.
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
      onCancel={(event) => {
        if (question === undefined) return
        event.preventDefault()
        ask(close)
      }}
      onClose={() => {
        if (question === undefined || isConfirmed.current) return onClose()
        // Browsers do not let a page prevent a second Escape.
        dialog.current?.showModal()
        ask(close)
      }}
      onClickCapture={(event) => {
        const href = (event.target as Element).closest('a')?.getAttribute('href')
        if (question === undefined || !href) return
        event.preventDefault()
        event.stopPropagation()
        ask(() => navigate(href))
      }}
    >
      <header>
        <h2 id={id} ref={heading} tabIndex={-1}>
          {title}
        </h2>
        <button
          type="button"
          class="plain"
          aria-label={t.common.close}
          onClick={() => (question === undefined ? close() : ask(close))}
        >
          <Icon name="cross" />
        </button>
      </header>
      {children}
      {leave !== null && question !== undefined && (
        <Question text={question} onYes={leave} onNo={() => setLeave(null)} />
      )}
    </dialog>
  )
}

/** The focus is on the answer that loses nothing. */
function Question({ text, onYes, onNo }: { text: string; onYes: () => void; onNo: () => void }) {
  const { t } = useLocalized()
  const no = useRef<HTMLButtonElement>(null)
  useEffect(() => no.current?.focus(), [])
  return (
    <div class="notice danger question" role="alert">
      <p>{text}</p>
      <footer class="actions">
        <button type="button" ref={no} onClick={onNo}>
          {t.common.keepOpen}
        </button>
        <button type="button" class="danger" onClick={onYes}>
          {t.common.closeAnyway}
        </button>
      </footer>
    </div>
  )
}

/** @param next beside the button that closes the dialog */
export function CloseFooter({
  onClose,
  isPrimary = false,
  next,
}: {
  onClose: () => void
  isPrimary?: boolean
  next?: ComponentChildren
}) {
  const { t } = useLocalized()
  return (
    <footer class="actions">
      {next}
      <button type="button" class={isPrimary ? 'primary' : ''} onClick={onClose}>
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

/** Asks for confirmation of an action that cannot be undone. */
export function Confirm({
  title,
  text,
  submit,
  onConfirm,
  onClose,
  children,
  isAllowed = true,
}: {
  title: string
  text: string
  submit: string
  onConfirm: () => Promise<void>
  onClose: () => void
  children?: ComponentChildren
  isAllowed?: boolean
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (isAllowed) run(onConfirm)
        }}
      >
        <p>{text}</p>
        {children}
        <ActionFailure error={error} />
        <footer class="actions">
          <button type="button" onClick={onClose}>
            {t.common.cancel}
          </button>
          <button type="submit" class="danger" disabled={isRunning || !isAllowed}>
            {submit}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

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
