/**
 * `members.erase`: erases one person from several accounts, one account in each step. The job has ids of members, so neither it nor
 * the activity log contains the user id. `members.erase_matching`: erases all members of an account that match a filter, as they did
 * when the job started.
 */
import type { AccountDetails } from '../accounts/accounts.ts'
import { findVisibleAccount } from '../accounts/manage-accounts.ts'
import type { Filters } from '../audience/filters.ts'
import { eraseMember, type Membership } from '../audience/member-details.ts'
import { AppError } from '../errors.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { actorOf, type Job, jobStarted, soleOrganization, startJob } from './job.ts'
import {
  BEGINNING,
  type Counted,
  readSelected,
  requireExpected,
  scopeOfJob,
  selectMembers,
} from './selection.ts'
import { addCounts, type RunStep, type Step } from './step.ts'

/** The ledger or the database may refuse an erasure for a while. */
const RETRY_MS = 5_000
/** Members per step of a job over many: some milliseconds each, within its lease. */
const BATCH_MEMBERS = 25

interface Parameters {
  members: Array<{ accountId: string; memberId: string }>
}

/** Each erasure is recorded as `member.erased` of its account. @param memberships at least one, of accounts that the actor sees */
export function startErasures(
  transaction: Queryable,
  actor: Actor,
  memberships: Membership[],
): Promise<bigint> {
  const members = memberships.map(({ accountId, memberId }) => ({
    accountId: String(accountId),
    memberId: String(memberId),
  }))
  const kind = 'members.erase'
  const job = {
    kind,
    accountId: null,
    organizationId: soleOrganization(memberships),
    parameters: { members },
    total: members.length,
  } as const
  return startJob(transaction, actor, job, jobStarted(kind, { accounts: members.length }))
}

/** An erasure commits before its step is stored. After a kill, the step finds no member, and counts it as erased. */
export const eraseMemberships: RunStep = async (job, step) => {
  const { members } = job.parameters as Parameters
  const { index } = (job.position as { index: number } | null) ?? { index: 0 }
  const { [index]: member } = members
  if (member === undefined) throw new Error('the job names no member')
  const account = await findVisibleAccount(step.database, step, BigInt(member.accountId))
  if (account !== null && !(await erase(job, step, account, BigInt(member.memberId))))
    return waitForErasures(job, step, { index }, job.tally)
  // Hidden: the operator no longer sees the account, or it was removed.
  const tally = addCounts(job.tally, { erased: account ? 1 : 0, hidden: account ? 0 : 1 })
  const position = index + 1 < members.length ? { index: index + 1 } : null
  await step.commit(async () => ({ position, done: BigInt(index + 1), tally }))
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

const waitForErasures = ({ done }: Job, { commit }: Step, position: object, tally: unknown): Promise<void> =>
  commit(async () => ({
    position,
    done,
    tally: { ...(tally as object), waiting: 'erasure' },
    resumeInMs: RETRY_MS,
  }))

/** Call it in a transaction. Throws `count_changed`. */
export async function startErasingMatching(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Pick<AccountDetails, 'id' | 'organizationId'>,
  filters: Filters,
  counted: Counted,
): Promise<bigint> {
  const kind = 'members.erase_matching'
  requireExpected(counted)
  const selection = await selectMembers(transaction, accountId, filters)
  const job = { kind, accountId, organizationId, parameters: { ...selection }, total: counted.count } as const
  const activity = jobStarted(kind, { filters: selection.matching, members: counted.count })
  return startJob(transaction, actor, job, activity)
}

/** After a kill, the step does not find members that it has erased, so `done` may be less than all. */
export const eraseMatching: RunStep = async (job, step) => {
  const { accountId: id, organizationId } = scopeOfJob(job)
  const { ids, position } = await readSelected(step.database, job, BATCH_MEMBERS)
  let erased = 0
  while (erased < ids.length && (await erase(job, step, { id, organizationId }, ids[erased] as bigint)))
    erased += 1
  const done = job.done + BigInt(erased)
  if (erased < ids.length) return waitForErasures({ ...job, done }, step, job.position ?? BEGINNING, {})
  await step.commit(async () => ({ position, done, tally: {} }))
}
