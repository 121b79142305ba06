/** `events.retry` and `events.set_aside`: what an operator does with all failed events of a filter. */
import { APPLIED } from '../intake/retry-events.ts'
import {
  nextFailedEvents,
  type RetryPosition,
  retryEvents,
  setEventsAside,
  type UnappliedFilter,
} from '../intake/stored-events.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type Job, type NewJob, startJob } from './job.ts'
import { addCounts, type RunStep } from './step.ts'

/** 20 events × 5 ms per transaction = 0.1 s. */
const BATCH = 20

interface Parameters {
  /** null: all accounts that the operator sees */
  accountId: string | null
  /** null: any reason */
  failure: string | null
  /** why the events are set aside */
  reason?: string
}

/** Call it in a transaction. @param reason why the events are set aside; null: they are retried */
export function startEventsJob(
  transaction: Queryable,
  actor: Actor,
  { accountId, failure }: UnappliedFilter,
  reason: string | null,
  owner: Pick<NewJob, 'accountId' | 'organizationId' | 'total'>,
): Promise<bigint> {
  const [kind, action] =
    reason === null
      ? (['events.retry', 'events.retried'] as const)
      : (['events.set_aside', 'events.set_aside'] as const)
  const given = reason === null ? { failure } : { failure, reason }
  const parameters = { accountId: accountId === null ? null : String(accountId), ...given }
  return startJob(
    transaction,
    actor,
    { kind, ...owner, parameters },
    { action, object: { kind: 'event', id: null }, changes: { ...given, events: owner.total } },
  )
}

const nextOf = (job: Job, database: Queryable, organizationIds: OrganizationIds) => {
  const { accountId, failure } = job.parameters as Parameters
  const filter = { accountId: accountId === null ? null : BigInt(accountId), failure }
  const position = job.position as Record<keyof RetryPosition, string> | null
  const after = position && { accountId: BigInt(position.accountId), id: BigInt(position.id) }
  return nextFailedEvents(database, organizationIds, filter, after, BATCH)
}

/** An applied event is not found again, so after a kill, the tally lacks the events of at most one batch. */
export const retryFailedEvents: RunStep = async (job, { database, organizationIds, commit }) => {
  const { ids, next } = await nextOf(job, database, organizationIds)
  const outcomes = await retryEvents(database, ids)
  const applied = outcomes.filter(({ outcome }) => outcome === APPLIED).length
  // The failed ones keep their ids, with a new reason.
  const tally = addCounts(job.tally, { applied, failed: outcomes.length - applied })
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
