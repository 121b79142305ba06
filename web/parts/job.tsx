/** Long work, which the console calls a job: its state, progress and results. It goes on when the page is closed. */
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

export type Job = Item<'job.list'>

const REFRESH_MS = 1_000
const RUNNING_REFRESH_MS = 5_000
const TONES: Record<string, string> = { done: 'good', failed: 'bad', cancelled: 'warning' }

export const isOver = ({ finishedAt }: Job): boolean => finishedAt !== null

/** Follows a job until its end. */
export function JobProgress({
  started,
  onEnd,
  outcomes,
}: {
  /** as the response to its start returned it */
  started: Job
  onEnd?: () => void
  /** what the job has done so far, in addition to its counts */
  outcomes?: (job: Job) => ComponentChildren
}) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const { isRunning, error, run } = useAction()
  const { job, error: failure, reload } = useJob(started)
  const hasEnded = isOver(job)
  useEffect(() => {
    if (hasEnded) onEnd?.()
  }, [hasEnded])
  const cancel = () =>
    run(async () => {
      await perform('job.cancel', started.id)
      reload()
    })
  return (
    <div class="job">
      <p>
        <Link href={`/settings/jobs/${job.id}`}>{stateIn(t.jobs.kinds, job.kind)}</Link>{' '}
        <JobState job={job} />
      </p>
      <JobBar job={job} />
      <p role="status">
        <JobCounts job={job} />
      </p>
      {!hasEnded && <Waiting job={job} />}
      {!hasEnded && <p class="muted small-text">{t.jobs.goesOn}</p>}
      {outcomes?.(job)}
      {failure && <Failure error={failure} />}
      <ActionFailure error={error} />
      {!hasEnded && isManager && job.kind !== 'account.remove' && (
        <button type="button" class="small" disabled={isRunning} onClick={cancel}>
          {t.jobs.cancel}
        </button>
      )}
    </div>
  )
}

/** A form that starts a job, and then the progress of the job. */
export function JobDialog({
  title,
  onSubmit,
  onClose,
  ...form
}: Omit<FormProps, 'onCancel' | 'onSubmit'> & {
  title: string
  /** Undefined: it is done without a job. */
  onSubmit: () => Promise<Job | undefined>
  onClose: () => void
}) {
  const [job, setJob] = useState<Job>()
  const submit = async () => {
    const started = await onSubmit()
    if (started === undefined) onClose()
    else setJob(started)
  }
  return (
    <Dialog title={title} onClose={onClose}>
      {job === undefined ? (
        <Form {...form} onSubmit={submit} onCancel={onClose} />
      ) : (
        <>
          <JobProgress started={job} />
          <CloseFooter onClose={onClose} />
        </>
      )}
    </Dialog>
  )
}

/** Why a job makes no progress now. */
function Waiting({ job: { tally } }: { job: Job }) {
  const { t } = useLocalized()
  const { waiting } = tally
  if (typeof waiting !== 'string') return null
  return (
    <p class={`notice ${waiting === 'paused' ? 'hint' : 'warning'}`}>{stateIn(t.jobs.waiting, waiting)}</p>
  )
}

function useJob(started: Job) {
  const { data, error, reload } = useRead('job.show', started.id)
  const job = data?.job ?? started
  const hasEnded = isOver(job)
  useEffect(() => {
    if (hasEnded) return
    const timer = setTimeout(reload, REFRESH_MS)
    return () => clearTimeout(timer)
  }, [data, error, hasEnded])
  return { job, error, reload }
}

export function JobState({ job: { status, reason } }: { job: Job }) {
  const { t } = useLocalized()
  return (
    <>
      <span class={`tag ${TONES[status] ?? ''}`}>{t.jobs.states[status]}</span>
      {reason !== null && reason !== status && <span> {stateIn(t.jobs.reasons, reason)}</span>}
    </>
  )
}

/** Without a total, the bar shows work without an end. */
export function JobBar({ job }: { job: Job }) {
  const { t } = useLocalized()
  if (isOver(job)) return null
  const label = stateIn(t.jobs.kinds, job.kind)
  if (job.total === null || Number(job.total) === 0) return <progress aria-label={label} />
  return <progress aria-label={label} value={Number(job.done)} max={Number(job.total)} />
}

/** The position in a file is a part of its length. All other work is counted. */
export function JobCounts({ job: { kind, done, total, tally } }: { job: Job }) {
  const { t, number, percent } = useLocalized()
  const count = number(Number(done))
  const all = total === null ? null : Number(total)
  const progress =
    all === null || all === 0
      ? count
      : kind === 'members.import'
        ? percent(Number(done) / all)
        : fill(t.jobs.ofTotal, { done: count, total: number(all) })
  const parts = Object.entries(t.jobs.tally).flatMap(([name, template]) => {
    const value = tally[name]
    return typeof value === 'number' ? [fill(template, { count: number(value) })] : []
  })
  return <>{[progress, ...parts].join(' · ')}</>
}

/** The number of running jobs, on every page. */
export function RunningJobs() {
  const { t, number } = useLocalized()
  const { running = [] } = useRead('job.running', null, {}, RUNNING_REFRESH_MS).data ?? {}
  return (
    <Link class="button plain" href="/settings/jobs">
      <Icon name="jobs" />
      <span>{t.jobs.title}</span>
      {running.length > 0 && <b class="tag">{number(running.length)}</b>}
    </Link>
  )
}
