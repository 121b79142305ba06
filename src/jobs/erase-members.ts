/**
 * `members.erase`: erases one person from several accounts, one account in each step. The job has ids of members, so neither it nor
 * the activity log contains the user id.
 */

import { findVisibleAccount } from '../accounts/manage-accounts.ts'
import { eraseMember } from '../audience/manage-members.ts'
import type { Membership } from '../audience/memberships.ts'
import { AppError } from '../errors.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { actorOf, startJob } from './job.ts'
import type { RunStep } from './step.ts'

/** The ledger or the database may refuse an erasure for a while. */
const RETRY_MS = 5_000

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
  const { organizationIds, database, erasureLedger, platform } = step
  const account = await findVisibleAccount(database, { organizationIds }, BigInt(member.accountId))
  const tally = account === null ? { erased, hidden: hidden + 1 } : { erased: erased + 1, hidden }
  try {
    const actor = actorOf(job, organizationIds)
    const now = platform?.now ?? Date.now
    if (account !== null)
      await eraseMember(database, erasureLedger, actor, account, BigInt(member.memberId), now)
  } catch (error) {
    if (!(error instanceof AppError && error.code === 'erase_failed')) throw error
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
