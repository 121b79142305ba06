/** Long work, which people call tasks. */
import { requireVisible } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { cancelJob, findJob, type JobSummary, listJobs, listRunningJobs } from '../jobs/job.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { Id } from './fields.ts'
import { type Noun, operationsOf } from './operation.ts'

const find = async (database: Queryable, actor: Actor, id: bigint): Promise<JobSummary> =>
  requireVisible(await findJob(database, actor, id), 'task', id)

export const JOB: Noun<JobSummary> = { kind: 'job', word: 'task', plural: 'jobs', find }
const { read, list, change } = operationsOf(JOB)

export const JOBS = {
  list: list({
    name: 'job.list',
    does: 'list tasks',
    input: { account: Type.Optional(Id('only tasks of this account')) },
    run: ({ database, actor, input: { account: accountId = null } }, { after, limit }) =>
      listJobs(database, actor, { beforeId: after ?? INT64_MAX, limit, accountId }),
  }),

  running: list({
    name: 'job.running',
    does: 'list running tasks',
    isOfAll: true,
    isWhole: true,
    run: ({ database, actor }) => listRunningJobs(database, actor),
  }),

  show: read({
    name: 'job.show',
    does: 'see a task',
    run: async ({ target }) => ({ job: target }),
  }),

  /** A job that has ended meanwhile is not an error: the result shows how it ended. */
  cancel: change({
    name: 'job.cancel',
    does: 'stop a task',
    records: 'job.cancelled',
    run: async ({ database, actor, target: { id } }) => {
      const isCancelled = await cancelJob(database, actor, id)
      const result = { job: await find(database, actor, id), isCancelled }
      return { result, changes: isCancelled ? { kind: result.job.kind, done: result.job.done } : null }
    },
  }),
}
