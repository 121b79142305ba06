/** `account.remove`: deletes an account with all its rows, in the steps of remove-account.ts. */
import type { Account } from '../accounts/account.ts'
import { ACCOUNT_PARTITIONED_TABLES, ACCOUNT_TABLES } from '../accounts/account-rows.ts'
import {
  BEGINNING,
  deleteNextRows,
  finishErasuresOf,
  type RemovalPosition,
  refuseRequests,
} from '../accounts/remove-account.ts'
import type { Actor } from '../operators/actor.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import type { Queryable } from '../postgres/statement.ts'
import { startJob } from './job.ts'
import type { RunStep } from './step.ts'

/** In the transaction, the account stops to accept deliveries and requests. */
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
  const id = await startJob(transaction, actor, job, null)
  await refuseRequests(transaction, accountId)
  return id
}

const TABLES = [...ACCOUNT_TABLES, ...ACCOUNT_PARTITIONED_TABLES]

/** Deleted rows. Those of the last transaction count as rows of the account. */
export type RemovalTally = Partial<Record<(typeof TABLES)[number] | 'official_account', number>>

export const removeAccountRows: RunStep = async (job, { database, commit }) => {
  const { position, done } = job
  const tally = job.tally as RemovalTally
  const accountId = BigInt((job.parameters as { accountId: string }).accountId)
  if (position === null) await finishErasuresOf(database, accountId)
  try {
    await commit(async (transaction) => {
      const from = (position as RemovalPosition | null) ?? BEGINNING
      const { deleted, next } = await deleteNextRows(transaction, accountId, from)
      const table = TABLES[from.table] ?? 'official_account'
      const count = (tally[table] ?? 0) + deleted
      return { position: next, done: done + BigInt(deleted), tally: { ...tally, [table]: count } }
    })
  } catch (error) {
    if (violatedConstraint(error) === null) throw error
    // Another program has inserted a row after its table had been emptied.
    await commit(async () => ({ position: BEGINNING, done, tally }))
  }
}
