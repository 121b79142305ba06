import type { ComponentChildren } from 'preact'
import type { ApiError } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { ActionFailure } from './states.tsx'

interface TestDialogProps {
  title: string
  isRunning: boolean
  error: ApiError | undefined
  onSend: () => void
  onClose: () => void
  /** above the result */
  intro?: string
  children: ComponentChildren
}

/** The test of a receiver, which can be repeated. */
export function TestDialog({ title, isRunning, error, onSend, onClose, intro, children }: TestDialogProps) {
  const { t } = useLocalized()
  return (
    <Dialog title={title} onClose={onClose} isWide>
      {intro !== undefined && <p class="muted">{intro}</p>}
      <p role="status">{isRunning ? t.endpoints.testing : ''}</p>
      <ActionFailure error={error} />
      {children}
      <footer class="actions">
        <button type="button" disabled={isRunning} onClick={onSend}>
          {t.endpoints.testAgain}
        </button>
        <button type="button" class="primary" onClick={onClose}>
          {t.common.close}
        </button>
      </footer>
    </Dialog>
  )
}
