/** `events.retry` and `events.set_aside`: what an operator does with all failed events of a filter. */

import {
  nextFailedEvents,
  type RetryPosition,
  retryEvents,
  setEventsAside,
  type UnappliedFilter,
} from '../audience/events.ts'
import { APPLIED } from '../intake/retry-events.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type Job, type NewJob, startJob } from './job.ts'
import type { RunStep } from './step.ts'

/** Events between two checks of the job. 20 events × 5 ms per transaction = 0.1 s. */
const BATCH = 20

interface Parameters {
  /** null: all accounts that the operator sees */
  accountId: string | null
  /** null: any reason */
  failure: string | null
  /** why the events are set aside */
  reason?: string
}

interface Tally {
  applied: number
  /** they keep their ids, with a new reason */
  failed: number
}

type Owner = Pick<NewJob, 'accountId' | 'organizationId' | 'total'>

/** Call it in a transaction. */
export function startEventRetry(
  transaction: Queryable,
  actor: Actor,
  { accountId, failure }: UnappliedFilter,
  owner: Owner,
): Promise<bigint> {
  return startJob(
    transaction,
    actor,
    { kind: 'events.retry', ...owner, parameters: { accountId: textOf(accountId), failure } },
    {
      action: 'events.retried',
      object: { kind: 'event', id: null },
      changes: { failure, events: owner.total },
    },
  )
}

/** Call it in a transaction. */
export function startSettingAside(
  transaction: Queryable,
  actor: Actor,
  { accountId, failure }: UnappliedFilter,
  reason: string,
  owner: Owner,
): Promise<bigint> {
  return startJob(
    transaction,
    actor,
    { kind: 'events.set_aside', ...owner, parameters: { accountId: textOf(accountId), failure, reason } },
    {
      action: 'events.set_aside',
      object: { kind: 'event', id: null },
      changes: { failure, events: owner.total },
    },
  )
}

const textOf = (id: bigint | null) => (id === null ? null : String(id))

const nextOf = (job: Job, database: Queryable, organizationIds: OrganizationIds) => {
  const { accountId, failure } = job.parameters as Parameters
  const filter = { accountId: accountId === null ? null : BigInt(accountId), failure }
  const position = job.position as Record<keyof RetryPosition, string> | null
  const after = position && { accountId: BigInt(position.accountId), id: BigInt(position.id) }
  return nextFailedEvents(database, organizationIds, filter, after, BATCH)
}

/**
 * Each event is applied in a transaction of its own, which is safe to repeat: an applied event is not found again. After a kill, the
 * tally therefore lacks the events of at most one batch.
 */
export const retryFailedEvents: RunStep = async (job, { database, organizationIds, commit }) => {
  const { applied = 0, failed = 0 } = job.tally as Partial<Tally>
  const { ids, next } = await nextOf(job, database, organizationIds)
  const outcomes = await retryEvents(database, ids)
  const added = outcomes.filter(({ outcome }) => outcome === APPLIED).length
  const tally: Tally = { applied: applied + added, failed: failed + outcomes.length - added }
  await commit(async () => ({ position: next, done: job.done + BigInt(outcomes.length), tally }))
}

export const setFailedEventsAside: RunStep = async (job, { organizationIds, commit }) => {
  const { reason = '' } = job.parameters as Parameters
  await commit(async (transaction) => {
    const { ids, next } = await nextOf(job, transaction, organizationIds)
    const changed = await setEventsAside(transaction, ids, reason)
    return { position: next, done: job.done + BigInt(changed.length), tally: {} }
  })
}
