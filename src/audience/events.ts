/** Stored events: list and show them, and retry those that could not be applied. Planner idioms: docs/planner.md. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { requireVisible } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { retryEvent } from '../intake/retry-events.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'

type EventSummary = {
  id: bigint
  accountId: AccountId
  source: string
  kind: string
  occurredAt: string
  receivedAt: string
  /** why the event could not be applied; null: it was applied */
  failure: string | null
}

/** `payload` is the event as received; null: its content was erased. */
export type EventDetails = EventSummary & { payload: string | null }

/**
 * $1 account id bigint, null: all accounts
 * $2 maximum number of rows int
 */
const selectEvents = statement('select-newest-events')`
    select id, channel_oa_id as "accountId", source, kind,
           iso(occurred_at) as "occurredAt",
           iso(received_at) as "receivedAt", failure
      from stored_event
     where $1::bigint is null or channel_oa_id = $1
     order by id desc
     limit $2`

/**
 * The newest events first, applied or not. No index has this order, so this scans all events in a separate session. For commands
 * only.
 */
export function listEvents(
  database: Database,
  accountId: AccountId | null,
  limit: number,
): Promise<EventSummary[]> {
  return database.session((session) => session.query(selectEvents, [accountId, limit]))
}

export interface UnappliedFilter {
  /** null: all accounts */
  accountId: AccountId | null
  /** null: any reason */
  failure: string | null
}

/**
 * Each account reads its own range of event_failure. `between` finds one account by its index, and `$1 is null or` would read all.
 *
 * $1 account id bigint, null: all accounts; $2 reason text, null: any; $3 before this id bigint; $4 maximum number of rows int;
 * $5 organization ids bigint[], null: all. `between` uses the index of accounts for one and for all.
 */
const selectUnapplied = statement('select-unapplied')`
    select e.id, a.id as "accountId", a.name as "accountName", e.source, e.kind,
           iso(e.occurred_at) as "occurredAt",
           iso(e.received_at) as "receivedAt", e.failure
      from official_account a
     cross join lateral (
       select * from event
        where channel_oa_id = a.id and failure is not null and id < $3 and ($2::text is null or failure = $2)
        order by id desc limit $4) e
     where a.id between coalesce($1::bigint, '-9223372036854775808') and coalesce($1, 9223372036854775807)
       and visible(a.organization_id, $5)
     order by e.id desc
     limit $4`

export type UnappliedEvent = EventSummary & { accountName: string }

/** Events that could not be applied, the newest first. */
export function listUnappliedEvents(
  database: Queryable,
  organizationIds: OrganizationIds,
  { accountId, failure }: UnappliedFilter,
  { beforeId = INT64_MAX, limit }: { beforeId?: bigint; limit: number },
): Promise<UnappliedEvent[]> {
  return database.query(selectUnapplied, [accountId, failure, beforeId, limit, organizationIds])
}

const COUNTED_MAX = 10_000

/** $1 account id bigint, null: all accounts; $2 maximum number of events int */
const selectReasons = statement('select-failure-reasons')`
    select failure, count(*)::int as count
      from (select failure from event
             where failure is not null and ($1::bigint is null or channel_oa_id = $1) limit $2) e
     group by failure
     order by count(*) desc, failure`

/**
 * Each account reads its own range of event_failure, so failures of other organizations cost nothing. Not by visible(), which allows null
 * for all organizations: then PostgreSQL reads all accounts.
 *
 * $1 account id bigint, null: all accounts of the organizations; $2 maximum number of events int; $3 organization ids bigint[]
 */
const selectReasonsOfOrganizations = statement('select-failure-reasons-of-organizations')`
    select failure, count(*)::int as count
      from (select e.failure
              from official_account a
             cross join lateral (
               select failure from event where channel_oa_id = a.id and failure is not null limit $2) e
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

/** $1 event id bigint; $2 organization ids bigint[], null: all */
const selectEvent = statement('select-event')`
    select id, channel_oa_id as "accountId", source, kind,
           iso(occurred_at) as "occurredAt",
           iso(received_at) as "receivedAt", failure, payload
      from stored_event e
     where id = $1 and visible((select organization_id from official_account where id = e.channel_oa_id), $2)`

/** Throws NotVisible. */
export async function findEvent(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<EventDetails> {
  const [event] = await database.query<EventDetails>(selectEvent, [id, organizationIds])
  return requireVisible(event, 'event', id)
}

/** $1 event ids bigint[], null: all events that could not be applied */
const selectFailedEventIds = statement('select-failed-event-ids')`
    select id from event where failure is not null and ($1::bigint[] is null or id = any ($1)) order by id`

/** Returns the given ids whose events could not be applied. Null selects all such events. */
export async function findFailedEventIds(database: Queryable, ids: bigint[] | null): Promise<bigint[]> {
  const failed = await database.query<{ id: bigint }>(selectFailedEventIds, [ids])
  return failed.map(({ id }) => id)
}

/** $1 account id bigint, null: all accounts; $2 reason text, null: any; $3 maximum int; $4 organization ids bigint[], null: all */
const countUnappliedEvents = statement('count-unapplied')`
    select count(*)::int as count
      from (select 1 from event
             where failure is not null and ($1::bigint is null or channel_oa_id = $1) and ($2::text is null or failure = $2)
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
export type RetryPosition = {
  accountId: AccountId
  id: bigint
}

/**
 * $1 account id bigint, null: all accounts; $2 reason text, null: any; $3 and $4 after this account and id bigint;
 * $5 maximum number of rows int; $6 organization ids bigint[], null: all
 */
const selectNextUnapplied = statement('select-next-unapplied')`
    select channel_oa_id as "accountId", id
      from event
     where failure is not null and (channel_oa_id, id) > ($3, $4)
       and ($1::bigint is null or channel_oa_id = $1) and ($2::text is null or failure = $2)
       and visible((select organization_id from official_account where id = channel_oa_id), $6)
     order by channel_oa_id, id
     limit $5`

interface RetriedBatch {
  outcomes: RetryOutcome[]
  /** after which the next batch begins; null: all are done */
  next: RetryPosition | null
}

/** Retries the next events of a filter. Events that fail again keep their ids, so the position moves past them. */
export async function retryNextEvents(
  database: Transactions,
  organizationIds: OrganizationIds,
  { accountId, failure }: UnappliedFilter,
  after: RetryPosition | null,
  limit: number,
): Promise<RetriedBatch> {
  const from = [after?.accountId ?? INT64_MIN, after?.id ?? INT64_MIN]
  const values = [accountId, failure, ...from, limit, organizationIds]
  const batch = await database.query<RetryPosition>(selectNextUnapplied, values)
  const outcomes = await retryEvents(
    database,
    batch.map(({ id }) => id),
  )
  return { outcomes, next: batch.length < limit ? null : (batch.at(-1) ?? null) }
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

export type TailEvent = {
  id: bigint
  accountId: AccountId
  accountName: string
  organizationId: OrganizationId
  source: string
  kind: string
  occurredAt: string
  receivedAt: string
  userId: string | null
  failure: string | null
}

/**
 * The newest ids of all that were ever generated. The BRIN indexes on ids lead to the end of the partitions that received events in the
 * last minute. No flush takes that long.
 *
 * $1 maximum number of rows int
 */
const selectTail = statement('event-tail')`
    select e.id, e.channel_oa_id as "accountId", a.name as "accountName", a.organization_id as "organizationId", e.source, e.kind,
           iso(e.occurred_at) as "occurredAt",
           iso(e.received_at) as "receivedAt",
           e.user_id as "userId", e.failure
      from (select * from stored_event
             where id > (select coalesce(pg_sequence_last_value(pg_get_serial_sequence('event', 'id')::regclass), 0) - $1)
               and received_at > now() - interval '1 minute'
             order by id desc limit $1) e
      join lateral (select name, organization_id from official_account where id = e.channel_oa_id offset 0) a on true
     order by e.id desc`

/** The newest events first, of all accounts. */
export function readTail(database: Queryable, limit: number): Promise<TailEvent[]> {
  return database.query(selectTail, [limit])
}

/**
 * Each read searches all page ranges that the index has not summarized, which otherwise only VACUUM does. With two million new
 * events, a summary takes 3 s once, and a read then takes 15 ms instead of more than 5 s. A cancelled call keeps the ranges that it
 * summarized.
 */
const summarizeRanges = statement(
  'summarize-event-ids',
)`select brin_summarize_new_values(relid) from pg_partition_tree('event_id') where isleaf`

/** Call it from time to time before readTail. */
export async function prepareTail(database: Queryable): Promise<void> {
  await database.query(summarizeRanges)
}
