/** `events.retry`: applies events that were stored without effect. */

import { type RetryPosition, retryNextEvents, type UnappliedFilter } from '../audience/events.ts'
import { APPLIED } from '../intake/retry-events.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type NewJob, startJob } from './job.ts'
import type { RunStep } from './step.ts'

/** Events between two checks of the job. 20 events × 5 ms per transaction = 0.1 s. */
const BATCH = 20

interface Parameters {
  /** null: all accounts that the operator sees */
  accountId: string | null
  /** null: any reason */
  failure: string | null
}

interface Tally {
  applied: number
  /** they keep their ids, with a new reason */
  failed: number
}

/** Call it in a transaction. */
export function startEventRetry(
  transaction: Queryable,
  actor: Actor,
  { accountId, failure }: UnappliedFilter,
  owner: Pick<NewJob, 'accountId' | 'organizationId' | 'total'>,
): Promise<bigint> {
  const parameters: Parameters = { accountId: accountId === null ? null : String(accountId), failure }
  return startJob(
    transaction,
    actor,
    { kind: 'events.retry', ...owner, parameters: { ...parameters } },
    {
      action: 'events.retried',
      object: { kind: 'event', id: null },
      changes: { failure, events: owner.total },
    },
  )
}

/**
 * Each event is applied in a transaction of its own, which is safe to repeat: an applied event is no longer found. After a kill, the
 * tally therefore lacks the events of at most one batch.
 */
export const retryEvents: RunStep = async (job, { database, organizationIds, commit }) => {
  const { accountId, failure } = job.parameters as Parameters
  const { applied = 0, failed = 0 } = job.tally as Partial<Tally>
  const filter = { accountId: accountId === null ? null : BigInt(accountId), failure }
  const position = job.position as Record<keyof RetryPosition, string> | null
  const after = position && { accountId: BigInt(position.accountId), id: BigInt(position.id) }
  const { outcomes, next } = await retryNextEvents(database, organizationIds, filter, after, BATCH)
  const added = outcomes.filter(({ outcome }) => outcome === APPLIED).length
  const tally: Tally = { applied: applied + added, failed: failed + outcomes.length - added }
  await commit(async () => ({ position: next, done: job.done + BigInt(outcomes.length), tally }))
}
