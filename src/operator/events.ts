/** Stored events: list them, show one, and retry those that could not be applied. */
import type { AccountId } from '../accounts/account.ts'
import { retryEvent } from '../intake/retry.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'

export type EventSummary = {
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
 * $2 boolean, true: also events that were applied
 * $3 maximum number of rows int
 */
const selectEvents = `
  select id, channel_oa_id as "accountId", source, kind,
         to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "occurredAt",
         to_char(received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "receivedAt", failure
    from stored_event
   where ($1::bigint is null or channel_oa_id = $1) and ($2::boolean or failure is not null)
   order by id desc
   limit $3`

export interface EventFilter {
  /** null: all accounts */
  accountId: AccountId | null
  includeApplied: boolean
  limit: number
}

/** The newest events first. A scan of all events may exceed a request's time limit, so it runs in its own session. */
export function listEvents(
  database: Database,
  { accountId, includeApplied, limit }: EventFilter,
): Promise<EventSummary[]> {
  return database.session((session) => session.query(selectEvents, [accountId, includeApplied, limit]))
}

/** $1 event id bigint */
const selectEvent = `
  select id, channel_oa_id as "accountId", source, kind,
         to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "occurredAt",
         to_char(received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "receivedAt", failure, payload
    from stored_event
   where id = $1`

/** Null if the event does not exist. */
export async function findEvent(database: Queryable, id: bigint): Promise<EventDetails | null> {
  const [event] = await database.query<EventDetails>(selectEvent, [id])
  return event ?? null
}

/** $1 event ids bigint[], null: all events that could not be applied */
const selectFailedEventIds = `
  select id from event where failure is not null and ($1::bigint[] is null or id = any ($1)) order by id`

/** Of the given ids, those of events that could not be applied. Null selects all such events. */
export async function findFailedEventIds(database: Queryable, ids: bigint[] | null): Promise<bigint[]> {
  const failed = await database.query<{ id: bigint }>(selectFailedEventIds, [ids])
  return failed.map(({ id }) => id)
}

export type RetryOutcome = { id: bigint; outcome: string }

/** Retries the events in order of their ids. An outcome is `applied` or the reason why the event still waits. */
export async function retryEvents(database: Database, ids: bigint[]): Promise<RetryOutcome[]> {
  const outcomes: RetryOutcome[] = []
  for (const id of ids) outcomes.push({ id, outcome: await retryEvent(database, id) })
  return outcomes
}
