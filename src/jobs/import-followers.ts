/** `account.import_followers`: imports LINE's list of followers, one page in each step. */
import { type Account, findAccountOn } from '../accounts/account.ts'
import { importPage } from '../accounts/onboard.ts'
import type { ImportProgress } from '../audience/import/import-followers.ts'
import { FatalError } from '../errors.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { actorOf, startJob } from './job.ts'
import type { Platform, RunStep, Step } from './step.ts'

/** The last page is recorded as `account.followers_imported`. */
export function startFollowersImport(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Pick<Account, 'id' | 'organizationId'>,
): Promise<bigint> {
  const kind = 'account.import_followers'
  const job = { kind, accountId, organizationId, parameters: {}, total: null } as const
  return startJob(transaction, actor, job, {
    action: 'job.started',
    object: { kind: 'account', id: accountId },
    changes: { kind },
  })
}

export const importFollowersOf: RunStep = async (job, step) => {
  const { accountId } = job
  const account = accountId === null ? null : await findAccountOn(step.database, accountId)
  // The next commit finds that the account is gone.
  if (account === null) return step.commit(async () => ({ position: {}, done: job.done, tally: job.tally }))
  try {
    const actor = actorOf(job, step.organizationIds)
    const { lineApi } = platformOf(step)
    const page = await importPage({ database: step.database, lineApi, actor }, account)
    const { isComplete, seen, added, skipped } = page
    const position = isComplete ? null : {}
    await step.commit(async () => ({ position, done: BigInt(seen), tally: { added, skipped } }))
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    const tally = { ...(job.tally as ImportProgress), problem: error.message }
    await step.commit(async () => ({ position: null, done: job.done, tally, failure: 'refused_by_line' }))
  }
}

export function platformOf({ platform }: Pick<Step, 'platform'>): Platform {
  if (platform === null) throw new Error('the runner of jobs has no platform')
  return platform
}
