/** What was stored most recently, for a view that follows it. */
import type { AccountId } from '../accounts/account.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

export type TailEvent = {
  id: bigint
  accountId: AccountId
  accountName: string
  source: string
  kind: string
  occurredAt: string
  receivedAt: string
  userId: string | null
  failure: string | null
}

const selectLastId = statement('last-event-id')`
    select coalesce(pg_sequence_last_value(pg_get_serial_sequence('event', 'id')::regclass), 0) as id`

/** The greatest id that was ever given to an event. */
export async function lastEventId(database: Queryable): Promise<bigint> {
  const [row] = await database.query<{ id: bigint }>(selectLastId)
  return row?.id ?? 0n
}

/**
 * The BRIN indexes on ids lead to the end of the partitions that received something in the last minute. No transaction of a flush
 * takes that long.
 *
 * $1 after this id bigint; $2 maximum number of rows int
 */
const selectTail = statement('event-tail')`
    select e.id, e.channel_oa_id as "accountId", a.name as "accountName", e.source, e.kind,
           to_char(e.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "occurredAt",
           to_char(e.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "receivedAt",
           e.user_id as "userId", e.failure
      from (select * from stored_event
             where id > $1 and received_at > now() - interval '1 minute'
             order by id desc limit $2) e
      join lateral (select name from official_account where id = e.channel_oa_id offset 0) a on true
     order by e.id desc`

/** The newest events first, of all accounts. */
export function readTail(database: Queryable, afterId: bigint, limit: number): Promise<TailEvent[]> {
  return database.query(selectTail, [afterId, limit])
}

/**
 * The index names a range of pages as unknown until somebody summarizes it, and each read would search all such pages. Otherwise
 * only VACUUM does this. With two million new events it takes 3 s once, and a read takes 15 ms instead of more than 5 s. A call
 * that is cancelled keeps the ranges that it summarized.
 */
const summarizeRanges = statement('summarize-event-ids')`
    select brin_summarize_new_values(relid) from pg_partition_tree('event_id') where isleaf`

export async function prepareTail(database: Queryable): Promise<void> {
  await database.query(summarizeRanges)
}
