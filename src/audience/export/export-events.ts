/**
 * The events of an account in the order of receipt, as lines of JSON. Planner idioms: docs/planner.md.
 *
 * The time of receipt is the beginning of the transaction that stores the event. So an event may become visible after events with
 * later times. An export therefore ends before the oldest transaction that may still store an event (findExportEnd).
 */
import { INT64_MIN } from '../../http/path-id.ts'
import { readTimeUs } from '../../http/times.ts'
import { refuseInput } from '../../http/validate.ts'
import type { AccountId } from '../../ids.ts'
import { recordAccount } from '../../operators/activity.ts'
import type { Actor } from '../../operators/actor.ts'
import { type Queryable, type Row, statement, type Transactions } from '../../postgres/statement.ts'
import { readAhead } from '../list-route.ts'

/** Per statement: about 2 MiB of text, and 35 ms. */
const PAGE_EVENTS = 2_000
/** Bytes of payloads, after which a page ends. One payload may have 1 MiB. */
const PAGE_BYTES = 4 * 1024 * 1024
/** A transaction of the service has written something within this time, or has failed: a few statements of at most 5 s precede its first write. */
const EXPORT_LAG_SECONDS = 60

/** $1 seconds int. Sessions of other roles are only visible to members of pg_read_all_stats, but the service and its commands use one role. */
const selectExportEnd = statement('select-export-end')`
    select (extract(epoch from least(now() - $1::int * interval '1 second', min(xact_start))) * 1000000)::bigint as us
      from pg_stat_activity
     where datname = current_database() and backend_xid is not null`

/** Send it to the primary: replicas do not know its transactions. Pages that begin afterwards include every commit before it, also on a replica. */
export async function findExportEnd(primary: Queryable, lagSeconds = EXPORT_LAG_SECONDS): Promise<bigint> {
  const [row] = await primary.query<{ us: bigint }>(selectExportEnd, [lagSeconds])
  // In milliseconds, so that the end can be printed, and the next export begins there.
  return ((row as { us: bigint }).us / 1_000n) * 1_000n
}

/**
 * A page as one row, driven by event_account and tracking_event_account. A payload is JSON as received, so it may contain line ends.
 *
 * $1 account id bigint; $2, $3 microseconds and id of the event before the page bigint; $4 end in microseconds bigint; $5 maximum number of
 * events int; $6 maximum bytes of payloads int
 */
const selectEventPage = statement('select-event-page')`
    select string_agg(line, '') as text, count(*)::int as count, max(array[us, id]) as last
      from (
        select us, id,
               concat('{"id":"', id, '","accountId":"', $1::bigint, '","source":"', source,
                      '","kind":', to_json(kind), ',"occurredAt":"', iso(occurred_at), '","receivedAt":"',
                      iso(received_at), '","userId":', coalesce(to_json(user_id), 'null'), ',"payload":',
                      case when payload is null then 'null'
                           when strpos(payload, E'\\n') > 0 or strpos(payload, E'\\r') > 0
                           then translate(payload, E'\\n\\r', '  ') else payload end,
                      E'}\\n') as line,
               sum(octet_length(coalesce(payload, ''))) over (order by received_at, id rows unbounded preceding)
                 - octet_length(coalesce(payload, '')) as bytes_before
          from (
            select id, source, kind, occurred_at, received_at, user_id, payload,
                   (extract(epoch from received_at) * 1000000)::bigint as us
              from stored_event
             where channel_oa_id = $1 and received_at > '-infinity'
               and received_at >= timestamptz 'epoch' + $2::bigint * interval '1 microsecond'
               and (received_at, id) > (timestamptz 'epoch' + $2 * interval '1 microsecond', $3::bigint)
               and received_at < timestamptz 'epoch' + $4::bigint * interval '1 microsecond'
             order by received_at, id
             limit $5::int offset 0) e) page
     where bytes_before < $6::int`

interface PageRow extends Row {
  text: string
  count: number
  /** microseconds and id of the last one; null: none */
  last: [string, string] | null
}

export const eventLines = (database: Queryable, accountId: AccountId, range: EventRange) =>
  readAhead(readEvents(database, accountId, range))

async function* readEvents(database: Queryable, accountId: AccountId, { fromUs, toUs }: EventRange) {
  for (let [us, id] = [fromUs, INT64_MIN]; ; ) {
    const values = [accountId, us, id, toUs, PAGE_EVENTS, PAGE_BYTES]
    const [page] = await database.query<PageRow>(selectEventPage, values)
    if (page === undefined || page.last === null) return
    yield page
    const last = page.last.map(BigInt)
    us = last[0] as bigint
    id = last[1] as bigint
  }
}

/** Call it before the first byte, because an export that is interrupted has also left the service. */
export function recordEventExport(
  database: Transactions,
  actor: Actor,
  account: { id: AccountId; organizationId: bigint },
  { fromUs, toUs }: EventRange,
): Promise<void> {
  const changes = { from: isoTime(fromUs), to: isoTime(toUs) }
  return recordAccount(database, actor, 'events.exported', account, changes)
}

export const isoTime = (us: bigint): string => new Date(Number(us / 1_000n)).toISOString()

/** Times of receipt in microseconds since 1970. */
interface EventRange {
  fromUs: bigint
  toUs: bigint
}

export function readRange(given: { from: string; to?: string }, endUs: bigint): EventRange {
  const fromUs = readTimeUs('from', given.from)
  const toUs = given.to === undefined ? endUs : readTimeUs('to', given.to)
  if (given.to !== undefined && toUs < fromUs)
    refuseInput('to', 'must not be before the beginning of the range')
  return { fromUs, toUs: toUs < endUs ? toUs : endUs }
}
