/** `account.remove`: deletes an account with all its rows, in the steps of remove-account.ts. */
import { violatedConstraint } from '../../postgres/faults.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { recordAccount, type VisibleAccount } from '../accounts/manage-accounts.ts'
import {
  deleteNextRows,
  finishErasuresOf,
  type RemovalPosition,
  refuseRequests,
} from '../accounts/remove-account.ts'
import type { Actor } from '../actor.ts'
import { startJob } from './job.ts'
import type { RunStep } from './step.ts'

const START: RemovalPosition = { table: 0, page: 0 }

/** In the transaction, the account stops to accept deliveries and requests. */
export async function startRemoval(
  transaction: Queryable,
  actor: Actor,
  account: VisibleAccount,
): Promise<bigint> {
  const { id: accountId, organizationId, name } = account
  const job = {
    kind: 'account.remove' as const,
    // It is not a job of the account, because the removal deletes those.
    ...{ accountId: null, organizationId, total: null },
    parameters: { accountId: String(accountId), name },
  }
  const id = await startJob(transaction, actor, job, null)
  await refuseRequests(transaction, accountId)
  await recordAccount(transaction, actor, { action: 'removed', account, changes: { name: [name, null] } })
  return id
}

/** A command that still removes one of them may go on: both delete the same rows in batches. */
const continueInterrupted = statement('continue-removals')`
    insert into job (kind, organization_id, actor_kind, actor, parameters)
    select 'account.remove', organization_id, 'service', 'service', jsonb_build_object('accountId', id::text, 'name', name)
      from official_account a
     where is_being_removed
       and not exists (select from job where kind = 'account.remove' and status = 'running'
                                         and parameters->>'accountId' = a.id::text)`

/** Starts a task for each removal whose command was interrupted or whose task has failed. */
export async function continueRemovals(session: Queryable): Promise<void> {
  await session.query(continueInterrupted)
}

export const removeAccountRows: RunStep = async (job, { database, commit }) => {
  const { position, done } = job
  const accountId = BigInt((job.parameters as { accountId: string }).accountId)
  if (position === null) await finishErasuresOf(database, accountId)
  try {
    await commit(async (transaction) => {
      const from = (position as RemovalPosition | null) ?? START
      const { deleted, next } = await deleteNextRows(transaction, accountId, from)
      return { position: next, done: done + BigInt(deleted), tally: {} }
    })
  } catch (error) {
    if (violatedConstraint(error) === null) throw error
    // Another program has inserted a row after its table had been emptied.
    await commit(async () => ({ position: START, done, tally: {} }))
  }
}
