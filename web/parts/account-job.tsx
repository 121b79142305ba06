/** The progress of long work on accounts. It goes on when the page is closed. */
import { useEffect } from 'preact/hooks'
import { get, post } from '../api.ts'
import { useAction } from '../hooks.ts'
import { stateIn, useLocalized } from '../texts.ts'
import { ActionFailure } from './states.tsx'

export interface AccountJob {
  id: string
  kind: string
  done: string
  total: string | null
  tally: Record<string, unknown>
  status: 'uploading' | 'running' | 'done' | 'failed' | 'cancelled'
  reason: string | null
}

const POLL_MS = 1_000

export function JobProgress({ job, onChange }: { job: AccountJob; onChange: (job: AccountJob) => void }) {
  const { t, number } = useLocalized()
  const { isRunning, error, run } = useAction()
  const path = `/api/jobs/${job.id}`
  const isOver = job.status !== 'running'
  useEffect(() => {
    if (isOver) return
    const timer = setInterval(() => {
      get<{ job: AccountJob }>(path).then(
        (found) => onChange(found.job),
        // The next poll tries again.
        () => undefined,
      )
    }, POLL_MS)
    return () => clearInterval(timer)
  }, [path, isOver])
  const cancel = async () => onChange((await post<{ job: AccountJob }>(`${path}/cancel`)).job)
  const done = number(Number(job.done))
  const progress = job.total === null ? done : t.manage.ofTotal(done, number(Number(job.total)))
  return (
    <div class="job" role="status">
      <p>
        <b>{stateIn(t.manage.jobStates, job.status)}</b> {progress}
        {job.reason !== null && ` · ${stateIn(t.manage.jobReasons, job.reason)}`}
      </p>
      {!isOver && (
        <>
          {/* Without a value, the bar shows work without an end. */}
          <progress
            aria-label={t.manage.jobStates.running}
            {...(job.total === null ? {} : { value: Number(job.done), max: Math.max(1, Number(job.total)) })}
          />
          <p class="muted small-text">{t.manage.jobGoesOn}</p>
          <button type="button" class="small" disabled={isRunning} onClick={() => run(cancel)}>
            {t.common.cancel}
          </button>
        </>
      )}
      <ActionFailure error={error} />
    </div>
  )
}
