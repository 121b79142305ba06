/** A modal dialog of the browser. It traps the focus, closes with Escape and returns the focus. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'
import { useLocalized } from '../texts.ts'
import { Icon } from './icons.tsx'

export function Dialog({
  title,
  onClose,
  children,
  isWide = false,
}: {
  title: string
  onClose: () => void
  children: ComponentChildren
  isWide?: boolean
}) {
  const { t } = useLocalized()
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useRef<HTMLHeadingElement>(null)
  const id = useId()
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
    <dialog ref={dialog} class={isWide ? 'wide' : ''} aria-labelledby={id} onClose={onClose}>
      <header>
        <h2 id={id} ref={heading} tabIndex={-1}>
          {title}
        </h2>
        <button
          type="button"
          class="plain"
          aria-label={t.common.close}
          onClick={() => dialog.current?.close()}
        >
          <Icon name="cross" />
        </button>
      </header>
      {children}
    </dialog>
  )
}

/** Asks for confirmation of an action that cannot be undone. */
export function Confirm({
  title,
  text,
  submit,
  isRunning,
  onConfirm,
  onClose,
  children,
  isAllowed = true,
}: {
  title: string
  text: string
  submit: string
  isRunning: boolean
  onConfirm: () => void
  onClose: () => void
  children?: ComponentChildren
  isAllowed?: boolean
}) {
  const { t } = useLocalized()
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (isAllowed) onConfirm()
        }}
      >
        <p>{text}</p>
        {children}
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
