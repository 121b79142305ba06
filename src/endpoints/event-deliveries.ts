/** What the endpoints of an account made of one event, as far as the tables say it. */
import type { AccountId } from '../ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { printableUrl } from './address.ts'
import { COUNTED_MAX, DELIVERY_STATUS, type DeliveryStatus } from './endpoints.ts'

/**
 * - `pending`, `sending`, `failed`: the delivery with the event is stored.
 * - `accepted`: the flush queued the delivery, and the endpoint has accepted it: only then its row is deleted.
 * - `added_later`: the endpoint was added after the event was received.
 * - `excluded`: the flush did not queue it, because of the event types or the condition that the endpoint had then.
 * - `members`: the endpoint receives changes of members, which name no event.
 * - `unknown`: content that was erased before it was sent leaves no trace, failed deliveries are deleted at the end of the retention, only
 *   the newest COUNTED_MAX deliveries are examined, and events of an older version do not name their endpoints.
 */
type EventOutcome =
  | DeliveryStatus
  | 'accepted'
  | 'added_later'
  | 'excluded'
  | 'other_source'
  | 'members'
  | 'unknown'

export type EventDelivery = {
  endpointId: bigint
  name: string
  url: string
  outcome: EventOutcome
  /** null: the delivery is not stored */
  deliveryId: bigint | null
  isReplay: boolean
  /** that have begun */
  attempts: number | null
  lastAttemptAt: string | null
  lastStatus: number | null
}

/** $1 account id bigint; $2 event id bigint; $3 deliveries to examine int */
const selectDeliveries = statement('select-deliveries-of-event')`
    with sent as materialized (
      select key, source, received_at, is_forwarded, queued_for, payload from event where channel_oa_id = $1 and id = $2
    ), examined as materialized (
      select * from endpoint_delivery where channel_oa_id = $1 order by id desc limit $3
    )
    select p.id as "endpointId", p.name, p.url, d.id as "deliveryId", d.job_id is not null as "isReplay",
           coalesce(${DELIVERY_STATUS}, case
                when p.format = 'members' then 'members'
                when e.source is distinct from 'line' then 'other_source'
                when p.created_at > e.received_at or not e.is_forwarded then 'added_later'
                when not p.id = any (e.queued_for) then 'excluded'
                when e.queued_for is null or e.payload is null or (select count(*) from examined) = $3 then 'unknown'
                else 'accepted' end) as outcome,
           d.attempts, iso(d.last_attempt_at) as "lastAttemptAt", d.status as "lastStatus"
      from (select * from endpoint where channel_oa_id = $1 offset 0) p
      left join sent e on true
      left join examined d on d.endpoint_id = p.id and (d.event_keys @> array[e.key] or d.event_ids @> array[$2::bigint])
     order by p.id, d.id`

/** A row for each endpoint, and for each delivery of an endpoint: a replay sends an event again. */
export async function listEventDeliveries(
  database: Queryable,
  accountId: AccountId,
  eventId: bigint,
): Promise<EventDelivery[]> {
  const rows = await database.query<EventDelivery>(selectDeliveries, [accountId, eventId, COUNTED_MAX])
  return rows.map((row) => ({ ...row, url: printableUrl(row.url) }))
}
