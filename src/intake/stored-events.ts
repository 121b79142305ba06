/** Stored events: show them, and retry those that could not be applied or set them aside. Planner idioms: docs/planner.md. */
import { requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import { retryEvent } from './retry-events.ts'

export type EventSummary = {
  id: bigint
  accountId: AccountId
  source: string
  kind: string
  occurredAt: string
  receivedAt: string
  /** why the event could not be applied; null: it was applied */
  failure: string | null
  /** why an operator set the failed event aside; null: nobody did */
  setAside: string | null
}

export type EventNames = {
  accountName: string
  /** null: nobody, or erased */
  userId: string | null
  /** null: unknown */
  displayName: string | null
}

/** `payload` is the event as received; null: its content was erased. */
export type EventDetails = EventSummary & EventNames & { payload: string | null }

export interface UnappliedFilter {
  accountId: AccountId | null
  failure: string | null
}

const COUNTED_MAX = 10_000

/** $1 account id bigint, null: all accounts; $2 maximum number of events int */
const selectReasons = statement('select-failure-reasons')`
    select failure, count(*)::int as count
      from (select failure from event
             where failure is not null and set_aside is null and ($1::bigint is null or channel_oa_id = $1) limit $2) e
     group by failure
     order by count(*) desc, failure`

/** As above. $3 organization ids bigint[]. With visible(), which allows null, PostgreSQL would read the events of all accounts. */
const selectReasonsOfOrganizations = statement('select-failure-reasons-of-organizations')`
    select failure, count(*)::int as count
      from (select e.failure
              from official_account a
             cross join lateral (
               select failure from event where channel_oa_id = a.id and failure is not null and set_aside is null limit $2) e
             where a.organization_id = any ($3) and ($1::bigint is null or a.id = $1)
             limit $2) e
     group by failure
     order by count(*) desc, failure`

export type FailureReason = { failure: string; count: number }

/** The reasons of up to COUNTED_MAX events, the most frequent first. */
export function listFailureReasons(
  database: Queryable,
  organizationIds: OrganizationIds,
  accountId: AccountId | null,
): Promise<FailureReason[]> {
  if (organizationIds === null) return database.query(selectReasons, [accountId, COUNTED_MAX])
  return database.query(selectReasonsOfOrganizations, [accountId, COUNTED_MAX, organizationIds])
}

const selectEvent = statement('select-event')`
    select e.id, e.channel_oa_id as "accountId", a.name as "accountName", e.source, e.kind,
           iso(e.occurred_at) as "occurredAt", iso(e.received_at) as "receivedAt",
           e.user_id as "userId", m.display_name as "displayName", e.failure, e.set_aside as "setAside", e.payload
      from stored_event e
      join official_account a on a.id = e.channel_oa_id and visible(a.organization_id, $2)
      left join audience_member m on m.channel_oa_id = e.channel_oa_id and m.user_id = e.user_id
     where e.id = $1`

export async function findEvent(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<EventDetails> {
  const [event] = await database.query<EventDetails>(selectEvent, [id, organizationIds])
  return requireVisible(event, 'event', id)
}

/** Driven by event_failure_id, whose condition it repeats. $1 event ids bigint[], null: all failed events that nobody set aside */
const selectFailedEventIds = statement('select-failed-event-ids')`
    select id from event where failure >= '' and ($1::bigint[] is null and set_aside is null or id = any ($1)) order by id`

/** Returns the given ids whose events could not be applied. Null selects all such events that nobody set aside. */
export async function findFailedEventIds(database: Queryable, ids: bigint[] | null): Promise<bigint[]> {
  const failed = await database.query<{ id: bigint }>(selectFailedEventIds, [ids])
  return failed.map(({ id }) => id)
}

/** $1 account id bigint, null: all accounts; $2 reason text, null: any; $3 maximum int; $4 organization ids bigint[], null: all */
const countUnappliedEvents = statement('count-unapplied')`
    select count(*)::int as count
      from (select 1 from event
             where failure is not null and set_aside is null and ($1::bigint is null or channel_oa_id = $1) and ($2::text is null or failure = $2)
               and visible((select organization_id from official_account where id = channel_oa_id), $4)
             limit $3) e`

/** Counts the events that could not be applied. Null: more than COUNTED_MAX. */
export async function countUnapplied(
  database: Queryable,
  organizationIds: OrganizationIds,
  { accountId, failure }: UnappliedFilter,
): Promise<number | null> {
  const values = [accountId, failure, COUNTED_MAX + 1, organizationIds]
  const [row] = await database.query<{ count: number }>(countUnappliedEvents, values)
  return row === undefined || row.count > COUNTED_MAX ? null : row.count
}

/** In the order of event_failure. */
export type RetryPosition = { accountId: AccountId; id: bigint }

/** $1 account id bigint, $2 reason text, null: any; $3 and $4 after this account and id bigint; $5 limit int; $6 organization ids bigint[] */
const selectNextUnapplied = statement('select-next-unapplied')`
    select channel_oa_id as "accountId", id
      from event
     where failure is not null and set_aside is null and (channel_oa_id, id) > ($3, $4)
       and ($1::bigint is null or channel_oa_id = $1) and ($2::text is null or failure = $2)
       and visible((select organization_id from official_account where id = channel_oa_id), $6)
     order by channel_oa_id, id
     limit $5`

/** Events that fail again keep their ids, so the position moves past them. `next` null: this is the last batch. */
export async function nextFailedEvents(
  database: Queryable,
  organizationIds: OrganizationIds,
  { accountId, failure }: UnappliedFilter,
  after: RetryPosition | null,
  limit: number,
): Promise<{ ids: bigint[]; next: RetryPosition | null }> {
  const from = [after?.accountId ?? INT64_MIN, after?.id ?? INT64_MIN]
  const values = [accountId, failure, ...from, limit, organizationIds]
  const batch = await database.query<RetryPosition>(selectNextUnapplied, values)
  return { ids: batch.map(({ id }) => id), next: batch.length < limit ? null : (batch.at(-1) ?? null) }
}

/** Driven by event_failure_id. $1 event ids bigint[]; $2 reason text, null: they count as failed again */
const updateSetAside = statement('set-events-aside')`
    update event set set_aside = $2 where id = any ($1) and failure >= '' returning id`

/** Sets failed events aside: they no longer degrade their accounts, and can still be retried. Returns the ids of those that failed. */
export async function setEventsAside(
  database: Queryable,
  ids: bigint[],
  reason: string | null,
): Promise<bigint[]> {
  const changed = await database.query<{ id: bigint }>(updateSetAside, [ids, reason])
  return changed.map(({ id }) => id)
}

export type RetryOutcome = { id: bigint; outcome: string }

/** Retries the events in order of their ids. An outcome is `applied` or the reason of the new failure. */
export async function retryEvents(database: Transactions, ids: bigint[]): Promise<RetryOutcome[]> {
  const outcomes: RetryOutcome[] = []
  for (const id of ids) outcomes.push({ id, outcome: await retryEvent(database, id) })
  return outcomes
}

/** Records the retry before it begins, as that of a filter. @param of null: events of several accounts */
export function recordRetry(
  database: Queryable,
  actor: Actor,
  ids: bigint[],
  of: { accountId: AccountId; organizationId: OrganizationId | null } | null,
): Promise<void> {
  const [id = null] = ids.length === 1 ? ids : []
  return recordActivity(database, actor, {
    action: 'events.retried',
    object: { kind: 'event', id },
    organizationId: of?.organizationId ?? null,
    accountId: of?.accountId ?? null,
    changes: { events: ids.length },
  })
}
