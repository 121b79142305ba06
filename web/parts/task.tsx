/** Long work, which the console calls a task: its state, progress and results. It goes on when the page is closed. */
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { type Item, perform, useRead } from '../operations.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'
import { CloseFooter, Dialog } from './dialog.tsx'
import { Form, type FormProps } from './form.tsx'
import { Icon } from './icons.tsx'
import { ActionFailure, Failure } from './states.tsx'

export type Task = Item<'job.list'>

const REFRESH_MS = 1_000
const RUNNING_REFRESH_MS = 5_000
const TONES: Record<string, string> = { done: 'good', failed: 'bad', cancelled: 'warning' }

export const isOver = ({ finishedAt }: Task): boolean => finishedAt !== null

/** Follows a task until its end. */
export function TaskProgress({
  started,
  onEnd,
  outcomes,
}: {
  /** as the response to its start returned it */
  started: Task
  onEnd?: () => void
  /** what the task has done so far, in addition to its counts */
  outcomes?: (task: Task) => ComponentChildren
}) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const { isRunning, error, run } = useAction()
  const { task, error: failure, reload } = useTask(started)
  const hasEnded = isOver(task)
  useEffect(() => {
    if (hasEnded) onEnd?.()
  }, [hasEnded])
  const cancel = () =>
    run(async () => {
      await perform('job.cancel', started.id)
      reload()
    })
  return (
    <div class="task">
      <p>
        <Link href={`/settings/tasks/${task.id}`}>{stateIn(t.tasks.kinds, task.kind)}</Link>{' '}
        <TaskState task={task} />
      </p>
      <TaskBar task={task} />
      <p role="status">
        <TaskCounts task={task} />
      </p>
      {!hasEnded && <Waiting task={task} />}
      {!hasEnded && <p class="muted small-text">{t.tasks.goesOn}</p>}
      {outcomes?.(task)}
      {failure && <Failure error={failure} />}
      <ActionFailure error={error} />
      {!hasEnded && isManager && task.kind !== 'account.remove' && (
        <button type="button" class="small" disabled={isRunning} onClick={cancel}>
          {t.tasks.cancel}
        </button>
      )}
    </div>
  )
}

/** A form that starts a task, and then the progress of the task. */
export function TaskDialog({
  title,
  onSubmit,
  onClose,
  ...form
}: Omit<FormProps, 'onCancel' | 'onSubmit'> & {
  title: string
  /** Undefined: it is done without a task. */
  onSubmit: () => Promise<Task | undefined>
  onClose: () => void
}) {
  const [task, setTask] = useState<Task>()
  const submit = async () => {
    const started = await onSubmit()
    if (started === undefined) onClose()
    else setTask(started)
  }
  return (
    <Dialog title={title} onClose={onClose}>
      {task === undefined ? (
        <Form {...form} onSubmit={submit} onCancel={onClose} />
      ) : (
        <>
          <TaskProgress started={task} />
          <CloseFooter onClose={onClose} />
        </>
      )}
    </Dialog>
  )
}

/** Why a task makes no progress now. */
function Waiting({ task: { tally } }: { task: Task }) {
  const { t } = useLocalized()
  const { waiting } = tally
  if (typeof waiting !== 'string') return null
  return <p class="notice warning">{stateIn(t.tasks.waiting, waiting)}</p>
}

function useTask(started: Task) {
  const { data, error, reload } = useRead('job.show', started.id)
  const task = data?.job ?? started
  const hasEnded = isOver(task)
  useEffect(() => {
    if (hasEnded) return
    const timer = setTimeout(reload, REFRESH_MS)
    return () => clearTimeout(timer)
  }, [data, error, hasEnded])
  return { task, error, reload }
}

export function TaskState({ task: { status, reason } }: { task: Task }) {
  const { t } = useLocalized()
  return (
    <>
      <span class={`tag ${TONES[status] ?? ''}`}>{t.tasks.states[status]}</span>
      {reason !== null && reason !== status && <span> {stateIn(t.tasks.reasons, reason)}</span>}
    </>
  )
}

/** Without a total, the bar shows work without an end. */
export function TaskBar({ task }: { task: Task }) {
  const { t } = useLocalized()
  if (isOver(task)) return null
  const label = stateIn(t.tasks.kinds, task.kind)
  if (task.total === null || Number(task.total) === 0) return <progress aria-label={label} />
  return <progress aria-label={label} value={Number(task.done)} max={Number(task.total)} />
}

/** The position in a file is a part of its length. All other work is counted. */
export function TaskCounts({ task: { kind, done, total, tally } }: { task: Task }) {
  const { t, number, percent } = useLocalized()
  const count = number(Number(done))
  const all = total === null ? null : Number(total)
  const progress =
    all === null || all === 0
      ? count
      : kind === 'members.import'
        ? percent(Number(done) / all)
        : fill(t.tasks.ofTotal, { done: count, total: number(all) })
  const parts = Object.entries(t.tasks.tally).flatMap(([name, template]) => {
    const value = tally[name]
    return typeof value === 'number' ? [fill(template, { count: number(value) })] : []
  })
  return <>{[progress, ...parts].join(' · ')}</>
}

/** The number of running tasks, on every page. */
export function RunningTasks() {
  const { t, number } = useLocalized()
  const { running = [] } = useRead('job.running', null, {}, RUNNING_REFRESH_MS).data ?? {}
  return (
    <Link class="button plain" href="/settings/tasks">
      <Icon name="tasks" />
      <span>{t.tasks.title}</span>
      {running.length > 0 && <b class="tag">{number(running.length)}</b>}
    </Link>
  )
}
