/** `oa-audience jobs`: long work. */
import { FatalError } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { type JobSummary, listJobs } from '../jobs/job.ts'
import { ACCOUNTS_MAX, listResults } from '../jobs/job-accounts.ts'
import { JOBS } from '../operations/jobs.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operators/actor.ts'
import { type CliCommand, parseId } from './command.ts'
import { type Printable, print, printMany, printOne } from './io.ts'
import { addOperation, performHere } from './operation-commands.ts'

export function jobsCommand(program: CliCommand): void {
  const group = program.command('jobs').description('see and end long work, such as replays and imports')

  group
    .command('list')
    .description('list the newest jobs; finished ones are kept for 30 days')
    .option('--account <id>', 'only jobs of this account', parseId)
    .limited('jobs')
    .onDatabase(
      (database, { account, limit }: { account?: bigint; limit: number }) => {
        const page = { beforeId: INT64_MAX, limit, accountId: account ?? null }
        return listJobs(database, commandActor(), page)
      },
      (jobs) => printMany(jobs.map(jobRow)),
    )

  addOperation(group, JOBS.show)
    .description('show a job with its parameters and results')
    .onDatabase(
      async (database, id: bigint) => {
        const { result } = await performHere(database, JOBS.show, { id })
        const { job } = result as { job: JobSummary }
        const page = { afterId: INT64_MIN, limit: ACCOUNTS_MAX }
        const accounts = await listResults(database, ALL_ORGANIZATIONS, { jobId: id }, page)
        return { ...job, ...(accounts.length > 0 && { accounts }) }
      },
      ({ accounts = [], ...job }) => {
        printOne(job)
        if (accounts.length > 0) print()
        if (accounts.length > 0) printMany(accounts)
      },
    )

  addOperation(group, JOBS.cancel)
    .description('end a job; what it has done stays, and pending deliveries are deleted')
    .onDatabase(async (database, id: bigint) => {
      const { result } = await performHere(database, JOBS.cancel, { id })
      if (!result?.isCancelled)
        throw new FatalError(`job ${id} has already ended: it is ${result?.job.status}.`)
      return { id, status: 'cancelled' }
    })
}

function jobRow(job: JobSummary): Printable {
  const { id, status, reason, done, total } = job
  return {
    id,
    job: job.kind,
    account: job.accountId,
    status: reason === null || reason === status ? status : `${status}: ${reason}`,
    done: total === null ? done : `${done} of ${total}`,
    'started at': job.createdAt,
    'started by': job.actor,
  }
}
