/** Shows the progress of a job until it has ended. The service works on it, not the command. */
import { setTimeout as sleep } from 'node:timers/promises'
import { commandActor } from '../operator/actor.ts'
import { findJob, type JobSummary, secondsSinceStep } from '../operator/jobs/job.ts'
import type { Database } from '../postgres/database.ts'
import { io, printError } from './io.ts'
import { Progress } from './progress.ts'

const POLL_MS = 500
/** An idle service takes a job within 3 s, and a job that waits for a paused endpoint is looked at every 3 s. */
const UNATTENDED_SECONDS = 10
const INTERRUPTS = ['SIGINT', 'SIGTERM'] as const

/** Ctrl-C ends the command, and the job goes on. Returns the job that has ended. */
export async function followJob(database: Database, id: bigint, unit: string): Promise<JobSummary | null> {
  const first = await findJob(database, commandActor(), id)
  const progress = new Progress(unit, first?.total == null ? null : Number(first.total))
  const interrupt = () => {
    progress.end()
    printError(
      `Task ${id} goes on. See it with "oa-audience jobs show ${id}", end it with "oa-audience jobs cancel ${id}".`,
    )
    process.exit(130)
  }
  for (const signal of INTERRUPTS) process.prependOnceListener(signal, interrupt)
  try {
    for (let job = first; ; job = await findJob(database, commandActor(), id)) {
      if (job === null || job.finishedAt !== null) return job
      progress.show(Number(job.done), await noteOf(database, job))
      await sleep(POLL_MS)
    }
  } finally {
    for (const signal of INTERRUPTS) process.off(signal, interrupt)
    progress.end()
  }
}

/** Why a job makes no progress. */
export async function noteOf(database: Database, { id, tally }: JobSummary): Promise<string> {
  if ((await secondsSinceStep(database, id)) > UNATTENDED_SECONDS)
    return '; nothing works on it: start the service (oa-audience serve)'
  if (tally.waiting === 'paused') return '; waits, because the endpoint is paused'
  return tally.waiting === 'receiver' ? '; waits for the receiver, which fails' : ''
}

/** Prints how a job has ended. The command fails if the job is not done. */
export function reportEnd(job: JobSummary | null): void {
  if (job?.status === 'done') return
  printError(
    `oa-audience: the task has ${job === null ? 'been deleted' : `ended: ${job.reason ?? job.status}`}`,
  )
  io.exitCode = 1
}
