/**
 * `members.erase`: erases one person from several accounts, one account in each step. The job has ids of members, so neither it nor
 * the activity log contains the user id. `members.erase_matching`: erases all members of an account that match a filter, as they did
 * when the job started.
 */

import type { AccountDetails } from '../accounts/accounts.ts'
import { findVisibleAccount } from '../accounts/manage-accounts.ts'
import type { Filters } from '../audience/filters.ts'
import { eraseMember } from '../audience/manage-members.ts'
import type { Membership } from '../audience/members.ts'
import { AppError } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { actorOf, type Job, startJob } from './job.ts'
import { type Counted, readSelected, scopeOfJob, select } from './selection.ts'
import type { RunStep, Step } from './step.ts'

/** The ledger or the database may refuse an erasure for a while. */
const RETRY_MS = 5_000
/** Members per step of a job over many: some milliseconds each, within its lease. */
const BATCH_MEMBERS = 25

interface Parameters {
  members: Array<{ accountId: string; memberId: string }>
}

interface Tally {
  /** memberships that no longer exist */
  erased: number
  /** in accounts that the operator no longer sees, or that were removed */
  hidden: number
}

/** Each erasure is recorded as `member.erased` of its account. @param memberships at least one, of accounts that the actor sees */
export function startErasures(
  transaction: Queryable,
  actor: Actor,
  memberships: Membership[],
): Promise<bigint> {
  const organizationIds = new Set(memberships.map(({ organizationId }) => organizationId))
  const [organizationId = null] = organizationIds.size === 1 ? organizationIds : []
  const members = memberships.map(({ accountId, memberId }) => ({
    accountId: String(accountId),
    memberId: String(memberId),
  }))
  const kind = 'members.erase'
  const job = {
    kind,
    accountId: null,
    organizationId,
    parameters: { members },
    total: members.length,
  } as const
  return startJob(transaction, actor, job, {
    action: 'job.started',
    object: { kind: 'job', id: null },
    changes: { kind, accounts: members.length },
  })
}

/** An erasure commits before its step is stored. After a kill, the step finds no member, and counts it as erased. */
export const eraseMemberships: RunStep = async (job, step) => {
  const { members } = job.parameters as Parameters
  const { index } = (job.position as { index: number } | null) ?? { index: 0 }
  const { erased = 0, hidden = 0 } = job.tally as Partial<Tally>
  const { [index]: member } = members
  if (member === undefined) throw new Error('the task names no member')
  const { organizationIds, database } = step
  const account = await findVisibleAccount(database, { organizationIds }, BigInt(member.accountId))
  const tally = account === null ? { erased, hidden: hidden + 1 } : { erased: erased + 1, hidden }
  if (account !== null && !(await erase(job, step, account, BigInt(member.memberId)))) {
    const waiting = { erased, hidden, waiting: 'erasure' }
    return step.commit(async () => ({
      position: { index },
      done: job.done,
      tally: waiting,
      resumeInMs: RETRY_MS,
    }))
  }
  const position = index + 1 < members.length ? { index: index + 1 } : null
  return step.commit(async () => ({ position, done: BigInt(index + 1), tally }))
}

/** Returns false if the ledger or the database refuses erasures for a while. */
async function erase(
  job: Job,
  { organizationIds, database, erasureLedger, platform }: Step,
  account: Pick<AccountDetails, 'id' | 'organizationId'>,
  memberId: bigint,
): Promise<boolean> {
  const now = platform?.now ?? Date.now
  try {
    await eraseMember(database, erasureLedger, actorOf(job, organizationIds), account, memberId, now)
    return true
  } catch (error) {
    if (error instanceof AppError && error.code === 'erase_failed') return false
    throw error
  }
}

/** Call it in a transaction. Throws `count_changed`. */
export async function startErasingMatching(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Pick<AccountDetails, 'id' | 'organizationId'>,
  filters: Filters,
  counted: Counted,
): Promise<bigint> {
  const kind = 'members.erase_matching'
  const selection = await select(transaction, accountId, filters, counted)
  const job = { kind, accountId, organizationId, parameters: { ...selection }, total: counted.count } as const
  return startJob(transaction, actor, job, {
    action: 'job.started',
    object: { kind: 'job', id: null },
    changes: { kind, filters: selection.matching, members: counted.count },
  })
}

/** After a kill, the step does not find members that it has erased, so `done` may be less than all. */
export const eraseMatching: RunStep = async (job, step) => {
  const { accountId: id, organizationId } = scopeOfJob(job)
  const { ids, position } = await readSelected(step.database, job, BATCH_MEMBERS)
  let count = 0
  for (const memberId of ids) {
    if (!(await erase(job, step, { id, organizationId }, memberId))) break
    count += 1
  }
  const isRefused = count < ids.length
  await step.commit(async () => ({
    position: isRefused ? (job.position ?? { id: String(INT64_MIN), isCommonName: false }) : position,
    done: job.done + BigInt(count),
    tally: isRefused ? { waiting: 'erasure' } : {},
    ...(isRefused && { resumeInMs: RETRY_MS }),
  }))
}
