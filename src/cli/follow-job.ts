/** Works on a job and shows its progress until it has ended. Instances of the service work on it, too, and on replays alone. */
import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError } from '../errors.ts'
import { findJob, type JobSummary, REPLAY_KINDS, secondsSinceStep } from '../jobs/job.ts'
import { COMMAND_KINDS } from '../jobs/kinds.ts'
import type { Platform } from '../jobs/step.ts'
import { takeTurn } from '../jobs/turn.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { io, printError } from './io.ts'
import { Progress } from './progress.ts'

const POLL_MS = 500
/** Longer than the wait for a locked row, and short enough for the progress. No other job waits for a turn of the command. */
const TURN_MS = 1_000
/** An idle service takes a job within 3 s, and a job that waits for a paused endpoint is looked at every 3 s. */
const UNATTENDED_SECONDS = 10
const INTERRUPTS = ['SIGINT', 'SIGTERM'] as const

/** Works on a job that was started. Throws a FatalError if it fails. @param platform of a job that calls LINE */
export async function finishJob(
  database: Database,
  id: bigint,
  unit: string | null = null,
  platform: Platform | null = null,
): Promise<JobSummary> {
  const job = await followJob(database, id, unit, platform)
  if (job?.status === 'done') return job
  throw new FatalError(String(job?.tally.problem ?? endText(job)))
}

/** Ctrl-C ends the command, and the job goes on. Returns the job that has ended. @param unit null: show no progress */
export async function followJob(
  database: Database,
  id: bigint,
  unit: string | null,
  platform: Platform | null = null,
): Promise<JobSummary | null> {
  const first = await findJob(database, commandActor(), id)
  const progress = unit && new Progress(unit, first?.total == null ? null : Number(first.total))
  const interrupt = () => {
    if (progress) progress.end()
    printError(
      `Job ${id} goes on while the service runs (oa-audience serve). See it with "oa-audience jobs show ${id}", end it with "oa-audience jobs cancel ${id}".`,
    )
    process.exit(130)
  }
  for (const signal of INTERRUPTS) process.prependOnceListener(signal, interrupt)
  try {
    for (;;) {
      const turn = await takeTurn(database, { jobId: id, turnMs: TURN_MS, kinds: COMMAND_KINDS, platform })
      const job = await findJob(database, commandActor(), id)
      if (job && progress) {
        const note = turn instanceof Error ? `; ${turn.message}` : await noteOf(database, job)
        progress.show(Number(job.done), note)
      }
      if (job === null || job.finishedAt !== null) return job
      if (turn === false) await sleep(POLL_MS)
    }
  } finally {
    for (const signal of INTERRUPTS) process.off(signal, interrupt)
    if (progress) progress.end()
  }
}

/** Why a job makes no progress. */
async function noteOf(database: Database, { id, kind, tally }: JobSummary): Promise<string> {
  if (REPLAY_KINDS.includes(kind) && (await secondsSinceStep(database, id)) > UNATTENDED_SECONDS)
    return '; nothing works on it: start the service (oa-audience serve)'
  if (tally.waiting === 'paused') return '; waits, because the endpoint is paused'
  return tally.waiting === 'receiver' ? '; waits for the endpoint, which fails' : ''
}

export function reportEnd(job: JobSummary | null): void {
  if (job?.status === 'done') return
  printError(`oa-audience: ${endText(job)}`)
  io.exitCode = 1
}

const endText = (job: JobSummary | null) =>
  `the job has ${job === null ? 'been deleted' : `ended: ${job.reason ?? job.status}`}`
