/** `oa-audience tasks`: long work, which the code calls jobs. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { type JobSummary, listJobs } from '../jobs/job.ts'
import { ACCOUNTS_MAX, listResults } from '../jobs/job-accounts.ts'
import { JOBS } from '../operations/jobs.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operators/actor.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { type Printable, print, printJson, printMany, printOne } from './io.ts'
import { addOperation, performHere } from './operation-commands.ts'

const LIST_DEFAULT = 50
const LIST_MAX = 10_000

export function jobsCommand(program: Command): void {
  const group = program.command('tasks').description('see and end long work, such as replays and imports')

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
      const { job, accounts } = await onDatabase(async (database) => {
        const { result } = await performHere(database, JOBS.show, { id })
        const page = { afterId: INT64_MIN, limit: ACCOUNTS_MAX }
        const accounts = await listResults(database, ALL_ORGANIZATIONS, { jobId: id }, page)
        return { ...(result as { job: JobSummary }), accounts }
      })
      if (json) return printJson(accounts.length > 0 ? { ...job, accounts } : job)
      printOne(jobDetails(job), false)
      if (accounts.length > 0) print()
      if (accounts.length > 0) printMany(accounts, false)
    })

  addOperation(group, JOBS.cancel)
    .description('end a task; what it has done stays, and pending deliveries are deleted')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { result } = await onDatabase((database) => performHere(database, JOBS.cancel, { id }))
      if (!result?.isCancelled)
        throw new FatalError(`task ${id} has already ended: it is ${result?.job.status}.`)
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
