/** `account.remove`: deletes an account with all its rows, in the steps of remove-account.ts. */
import type { Account } from '../accounts/account.ts'
import {
  ACCOUNT_TABLES,
  BEGINNING,
  deleteNextRows,
  finishErasuresOf,
  hasAudiences,
  leaveAudiences,
  type RemovalPosition,
  refuseRequests,
} from '../accounts/remove-account.ts'
import type { Actor } from '../operators/actor.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import type { Queryable } from '../postgres/statement.ts'
import { startJob } from './job.ts'
import type { RunStep } from './step.ts'

/** LINE may not respond, or refuse the credentials: then its audiences stay there, and expire after 180 days. */
const LEAVE_AUDIENCES_MS = 10 * 60_000
const LEAVE_PAUSE_MS = 1_000

/** In the transaction, the account stops to accept deliveries and requests, unless LINE has audiences of it, which need its credentials. */
export async function startRemoval(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId, name }: Pick<Account, 'id' | 'organizationId'> & { name: string },
): Promise<bigint> {
  const job = {
    kind: 'account.remove' as const,
    // It is not a job of the account, because the removal deletes those.
    accountId: null,
    organizationId,
    total: null,
    parameters: { accountId: String(accountId), name },
  }
  const isLeaving = await leaveAudiences(transaction, accountId)
  const position = isLeaving ? { leavingUntilMs: Date.now() + LEAVE_AUDIENCES_MS } : null
  const object = { kind: 'account', id: accountId } as const
  const activity = { action: 'account.removed', object, accountId, changes: { name: [name, null] } } as const
  const id = await startJob(transaction, actor, { ...job, position }, activity)
  if (!isLeaving) await refuseRequests(transaction, accountId)
  return id
}

/** Deleted rows. Those of the last transaction count as rows of the account. */
export type RemovalTally = Partial<Record<(typeof ACCOUNT_TABLES)[number] | 'official_account', number>>

export const removeAccountRows: RunStep = async (job, { database, commit }) => {
  const { position, done } = job
  const tally = job.tally as RemovalTally
  const accountId = BigInt((job.parameters as { accountId: string }).accountId)
  const { leavingUntilMs = null } = (position ?? {}) as { leavingUntilMs?: number }
  if (leavingUntilMs !== null) {
    const isLeaving = Date.now() < leavingUntilMs && (await hasAudiences(database, accountId))
    return commit(async (transaction) => {
      if (isLeaving) return { position, done, tally, resumeInMs: LEAVE_PAUSE_MS }
      await refuseRequests(transaction, accountId)
      return { position: BEGINNING, done, tally }
    })
  }
  const from = (position as RemovalPosition | null) ?? BEGINNING
  if (from.table === 0) await finishErasuresOf(database, accountId)
  try {
    await commit(async (transaction) => {
      const { deleted, next } = await deleteNextRows(transaction, accountId, from)
      const table = ACCOUNT_TABLES[from.table] ?? 'official_account'
      const count = (tally[table] ?? 0) + deleted
      return { position: next, done: done + BigInt(deleted), tally: { ...tally, [table]: count } }
    })
  } catch (error) {
    if (violatedConstraint(error) === null) throw error
    // Another program has inserted a row after its table had been emptied.
    await commit(async () => ({ position: BEGINNING, done, tally }))
  }
}
