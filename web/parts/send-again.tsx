/** Sends again what an endpoint has missed: the events of a time range, or the present state of members. */
import { useState } from 'preact/hooks'
import { queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { Panel } from './page.tsx'
import { ReplayForm } from './replay-form.tsx'
import { type Endpoint, ResendForm } from './resend-form.tsx'
import { isOver, type Task, TaskProgress } from './task.tsx'

const KINDS = ['endpoint.replay', 'endpoint.resend']

/** The button, and the task of this endpoint that has not ended. */
export function SendAgain({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const [isOpen, setOpen] = useState(false)
  const { data, reload } = useQuery<{ jobs: Task[] }>(`/api/jobs${queryOf({ account: endpoint.accountId })}`)
  const running = data?.jobs.find(
    (job) => !isOver(job) && KINDS.includes(job.kind) && String(job.parameters.endpointId) === endpoint.id,
  )
  const texts = endpoint.format === 'line' ? t.again.line : t.again.members
  const refresh = () => {
    reload()
    onChange()
  }
  return (
    <Panel
      title={t.again.title}
      actions={
        isManager &&
        running === undefined && (
          <button type="button" onClick={() => setOpen(true)}>
            {texts.open}
          </button>
        )
      }
    >
      <p class="muted">{texts.lead}</p>
      {running && !isOpen && <TaskProgress key={running.id} started={running} onEnd={refresh} />}
      {isOpen && (
        <SendAgainDialog
          endpoint={endpoint}
          onClose={() => {
            setOpen(false)
            refresh()
          }}
        />
      )}
    </Panel>
  )
}

function SendAgainDialog({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const { t } = useLocalized()
  const [task, setTask] = useState<Task>()
  const isLine = endpoint.format === 'line'
  return (
    <Dialog title={isLine ? t.again.line.heading : t.again.members.heading} onClose={onClose}>
      {task && (
        <>
          <TaskProgress started={task} />
          <footer class="actions">
            <button type="button" class="primary" onClick={onClose}>
              {t.common.close}
            </button>
          </footer>
        </>
      )}
      {!task && isLine && <ReplayForm endpoint={endpoint} onCancel={onClose} onStart={setTask} />}
      {!task && !isLine && <ResendForm endpoint={endpoint} onCancel={onClose} onStart={setTask} />}
    </Dialog>
  )
}
