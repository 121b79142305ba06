/** `oa-audience jobs`: long work, which the service does and the console calls tasks. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { type JobSummary, listJobs } from '../jobs/job.ts'
import { JOBS } from '../operations/jobs.ts'
import { commandActor } from '../operators/actor.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printJson, printMany, printOne } from './io.ts'
import { addOperation, performHere } from './operation-commands.ts'

const LIST_DEFAULT = 50
const LIST_MAX = 10_000

export function jobsCommand(program: Command): void {
  const group = program.command('jobs').description('see and end long work, such as replays and imports')

  withJson(group.command('list'))
    .description('list the newest tasks; finished ones are kept for 30 days')
    .option('--account <id>', 'only tasks of this account', parseId)
    .option('--limit <count>', 'maximum number of tasks', between(1, LIST_MAX), LIST_DEFAULT)
    .action(async ({ account, limit, json }: { account?: bigint; limit: number; json?: boolean }) => {
      const page = { beforeId: INT64_MAX, limit, accountId: account ?? null }
      const jobs = await onDatabase((database) => listJobs(database, commandActor(), page))
      if (json) printJson(jobs)
      else printMany(jobs.map(jobRow), false)
    })

  addOperation(group, JOBS.show)
    .description('show a task with its parameters and results')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { result } = await onDatabase((database) => performHere(database, JOBS.show, { id }))
      const { job } = result as { job: JobSummary }
      if (json) printJson(job)
      else printOne(jobDetails(job), false)
    })

  addOperation(group, JOBS.cancel)
    .description('end a task; what it has done stays, and deliveries that wait are deleted')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { result } = await onDatabase((database) => performHere(database, JOBS.cancel, { id }))
      if (!result?.isCancelled)
        throw new FatalError(`job ${id} has already ended: it is ${result?.job.status}.`)
      printOne({ id, status: 'cancelled' }, json === true)
    })
}

function jobRow(job: JobSummary): Printable {
  const { id, status, reason, done, total } = job
  return {
    id,
    task: job.kind,
    account: job.accountId,
    status: reason === null || reason === status ? status : `${status}: ${reason}`,
    done: total === null ? done : `${done} of ${total}`,
    'started at': job.createdAt,
    'started by': job.actor,
  }
}

function jobDetails(job: JobSummary): Printable {
  const texts = (values: Record<string, unknown>) =>
    Object.entries(values).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ])
  return {
    ...jobRow(job),
    'ended at': job.finishedAt,
    ...Object.fromEntries([...texts(job.parameters), ...texts(job.tally)]),
  }
}
