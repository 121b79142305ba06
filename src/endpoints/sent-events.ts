/**
 * Events of an account that were queued for one endpoint, the newest first. Only accepted deliveries leave their table, so an event without
 * a stored delivery was accepted: see event-deliveries.ts. Each statement examines a bounded number of events.
 */
import type { AccountId } from '../ids.ts'
import { BEGINNING, readPosition } from '../intake/list-events.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import {
  COUNTED_MAX,
  DELIVERY_COLUMNS,
  DELIVERY_STATUS,
  type DeliveryStatus,
  type DeliverySummary,
  listDeliveries,
  MEMBER_OF_EVENT,
} from './endpoints.ts'

/** 2,000 × 5 µs = 10 ms, for which other reads wait. */
const EXAMINED_MAX = 2_000
/** Of one page. Conditions and event types may exclude most events from an endpoint. */
const STATEMENTS_MAX = 5

/** `sent`: every event that was queued for the endpoint, by its receipt. */
export const LISTED_STATUSES = ['sent', 'accepted', 'pending', 'failed'] as const

export type ListedDelivery = Omit<DeliverySummary, 'id' | 'status' | 'attempts'> & {
  /** null: the delivery is not stored */
  id: bigint | null
  /** unknown: the event was erased, or more than COUNTED_MAX deliveries are stored */
  status: DeliveryStatus | 'accepted' | 'unknown'
  /** null: unknown */
  attempts: number | null
}

/**
 * $1 account id bigint; $2 endpoint id bigint; $3 and $4 the position before which the page begins, bigint; $5 events to examine int;
 * $6 deliveries to examine int; $7 whether only accepted ones are listed boolean; $8 rows int
 */
const selectSentEvents = statement('select-events-sent-to-endpoint')`
    with examined as materialized (
      select channel_oa_id, id, key, kind, user_id, received_at, payload is null as is_erased, queued_for,
             concat((extract(epoch from received_at) * 1000000)::bigint, '.', id) as position
        from event
       where channel_oa_id = $1 and received_at > '-infinity'
         and received_at <= timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
         and (received_at, id) < (timestamptz 'epoch' + $3::bigint * interval '1 microsecond', $4::bigint)
       order by received_at desc, id desc limit $5::int
    ), stored as materialized (
      select * from endpoint_delivery where channel_oa_id = $1 order by id desc limit $6::int
    ), open as materialized (
      select d.*, key from stored d cross join unnest(d.event_keys) key where d.endpoint_id = $2
    ), sent as materialized (
      select *, is_erased or (select count(*) from stored) = $6 as is_unknown
        from examined
       where $2 = any (queued_for)
         and (not $7::boolean or not is_erased and key not in (select key from open) and (select count(*) from stored) < $6)
       order by received_at desc, id desc limit $8::int
    )
    select coalesce((select position from sent order by received_at desc, id desc limit 1 offset $8 - 1),
                    (select position from examined order by received_at desc, id desc limit 1 offset $5 - 1)) as next,
           coalesce(d.id, refused.delivery_id) as id,
           coalesce(${DELIVERY_STATUS}, case when e.is_unknown then 'unknown' else 'accepted' end) as status,
           coalesce(d.attempts, refused.attempt + 1) as attempts, iso(e.received_at) as "createdAt", ${DELIVERY_COLUMNS}
      from (select) page
      left join sent e on true
      left join open d on d.key = e.key
      -- Of an accepted delivery, as far as it was refused before.
      left join lateral (
        select delivery_id, attempt from endpoint_attempt
         where endpoint_id = $2 and event_key = e.key and d.id is null
         order by attempt desc limit 1) refused on true
      left join lateral (${MEMBER_OF_EVENT}) m on true
     order by e.received_at desc, e.id desc`

/** `next` is null on the last page. Pending deliveries have no further page. */
export async function listDeliveryPage(
  database: Queryable,
  { id: endpointId, accountId }: { id: bigint; accountId: AccountId },
  { status, after }: { status: (typeof LISTED_STATUSES)[number]; after?: string | undefined },
  limit: number,
): Promise<{ deliveries: ListedDelivery[]; next: string | null }> {
  if (status === 'pending' || status === 'failed') {
    const { id: beforeId } = positionOf(after)
    const deliveries = await listDeliveries(database, endpointId, status, { beforeId, limit })
    const last = status === 'failed' && deliveries.length === limit ? deliveries.at(-1) : undefined
    return { deliveries, next: last === undefined ? null : `0.${last.id}` }
  }
  const deliveries: ListedDelivery[] = []
  let next: string | null | undefined = after
  for (let count = 0; count < STATEMENTS_MAX && next !== null && deliveries.length < limit; count += 1) {
    const limits = [EXAMINED_MAX, COUNTED_MAX, status === 'accepted', limit - deliveries.length]
    const { us, id } = positionOf(next)
    const values = [accountId, endpointId, us, id, ...limits]
    const rows: Array<ListedDelivery & Row & { next: string | null }> = await database.query(
      selectSentEvents,
      values,
    )
    next = rows[0]?.next ?? null
    deliveries.push(...rows.filter(({ eventId }) => eventId !== null).map(({ next: _, ...row }) => row))
  }
  return { deliveries, next: next ?? null }
}

const positionOf = (after: string | undefined) => (after === undefined ? BEGINNING : readPosition(after))
