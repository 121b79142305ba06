/** `oa-audience jobs`: long work, which the service does and the console calls tasks. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { commandActor } from '../operator/actor.ts'
import { cancelJob, findJob, type JobSummary, listJobs } from '../operator/jobs/job.ts'
import { between, notFound, onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printJson, printMany, printOne } from './io.ts'

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

  withJson(group.command('show'))
    .description('show a task with its parameters and results')
    .argument('<id>', 'id of the task, as `jobs list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const job = await onDatabase((database) => findJob(database, commandActor(), id))
      if (job === null) throw notFound('job', id)
      if (json) printJson(job)
      else printOne(jobDetails(job), false)
    })

  withJson(group.command('cancel'))
    .description('end a task; what it has done stays, and deliveries that wait are deleted')
    .argument('<id>', 'id of the task, as `jobs list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const actor = commandActor()
      const job = await onDatabase(async (database) => {
        const found = await findJob(database, actor, id)
        if (found === null) throw notFound('job', id)
        const isCancelled = await database.transaction((transaction) => cancelJob(transaction, actor, id))
        if (!isCancelled) throw new FatalError(`job ${id} has already ended: it is ${found.status}.`)
        return found
      })
      printOne({ id: job.id, status: 'cancelled' }, json === true)
    })
}

function jobRow({
  id,
  kind,
  accountId,
  status,
  reason,
  done,
  total,
  createdAt,
  actor,
}: JobSummary): Printable {
  return {
    id,
    task: kind,
    account: accountId,
    status: reason === null || reason === status ? status : `${status}: ${reason}`,
    done: total === null ? done : `${done} of ${total}`,
    'started at': createdAt,
    'started by': actor,
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
