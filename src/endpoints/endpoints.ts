/** Endpoints and their open deliveries for operators, without secrets and content. */
import type { SecretKeys } from '../config/secret-keys.ts'
import { NotVisible, requireVisible } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import type { AccountId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { printableUrl } from './address.ts'
import { type ContentRow, loadContents } from './contents.ts'
import { type EndpointFormat, unknownTypes } from './event-types.ts'
import { MissingSecret, writeMessage } from './messages.ts'
import type { Message } from './post.ts'
import { type EndpointSettings, SETTINGS } from './settings.ts'
import { HOURS_KEPT } from './settlements.ts'

/** Examining more deliveries takes long and does not help the operator. counted_per_endpoint() counts as many, or fewer. */
export const COUNTED_MAX = 10_000

/** The URL is without a query string, which may be a token: see printableUrl. */
export type EndpointSummary = EndpointSettings & {
  id: bigint
  accountId: AccountId
  accountName: string
  format: EndpointFormat
  /** of `events`, stored by other programs: the endpoint never receives them */
  unknownEvents: string[]
  status: string
  /** failing: the last response was not 2xx, or none, and something waits or has failed; slow: deliveries are late; else the status */
  state: string
  isRotating: boolean
  createdAt: string
  pending: number
  failed: number
  /** pending and failed deliveries are counted up to here */
  countedMax: number
  /** null: nothing is pending */
  oldestPendingSeconds: number | null
  /** null: nothing was sent yet; status null: there was no HTTP response */
  lastAnswer: { at: string; status: number | null; text: string } | null
}

/**
 * The oldest pending delivery is found among those that are counted, which are due first. $1 account id bigint, null: all accounts;
 * $2 endpoint id bigint, null: all; $3 after this id bigint; $4 maximum number of rows int, null: all; $5 organization ids bigint[],
 * null: all
 */
const selectEndpoints = statement('select-endpoints')`
    with counted as materialized (select counted_per_endpoint() as max)
    select p.id, p.channel_oa_id as "accountId", a.name as "accountName", ${SETTINGS}, p.format, p.status,
           p.previous_secret is not null as "isRotating", iso(p.created_at) as "createdAt",
           pending.count as pending, failed.count as failed, (select max from counted) as "countedMax",
           -- Whether it is down, or refuses a delivery. A refused delivery is not late before its retry is due.
           case when p.status <> 'active' then p.status
                when x.answered_at is not null and coalesce(x.status, 0) not between 200 and 299
                     and pending.count + failed.count > 0 then 'failing'
                when pending.due_at < now() - interval '10 minutes' then 'slow'
                else 'active' end as state,
           extract(epoch from now() - pending.first_at)::float8 as "oldestPendingSeconds",
           case when x.answered_at is not null
                then json_build_object('at', iso(x.answered_at), 'status', x.status, 'text', coalesce(x.answer, '')) end as "lastAnswer"
      from endpoint p
      join official_account a on a.id = p.channel_oa_id
      left join endpoint_answer x on x.endpoint_id = p.id
     cross join lateral (
       select count(*)::int as count, min(created_at) as first_at, min(due_at) as due_at
         from (select created_at, due_at from endpoint_delivery
                where endpoint_id = p.id and failed_at is null order by due_at limit (select max from counted)) d) pending
     cross join lateral (
       select count(*)::int as count
         from (select from endpoint_delivery
                where endpoint_id = p.id and failed_at is not null order by id limit (select max from counted)) d) failed
     where ($1::bigint is null or p.channel_oa_id = $1) and ($2::bigint is null or p.id = $2) and p.id > $3
       and visible(a.organization_id, $5)
     order by p.id
     limit $4`

export function listEndpoints(
  database: Queryable,
  organizationIds: OrganizationIds,
  accountId: AccountId | null,
  { afterId = INT64_MIN, limit = null }: { afterId?: bigint; limit?: number | null } = {},
): Promise<EndpointSummary[]> {
  return queryEndpoints(database, [accountId, null, afterId, limit, organizationIds])
}

export async function findEndpoint(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<EndpointSummary> {
  const [endpoint] = await queryEndpoints(database, [null, id, INT64_MIN, null, organizationIds])
  return requireVisible(endpoint, 'endpoint', id)
}

async function queryEndpoints(database: Queryable, values: unknown[]): Promise<EndpointSummary[]> {
  const rows = await database.query<Omit<EndpointSummary, 'unknownEvents'>>(selectEndpoints, values)
  return rows.map((row) => ({
    ...row,
    url: printableUrl(row.url),
    unknownEvents: unknownTypes(row.format, row.events),
  }))
}

/** `sending`: a process has leased it. */
export type DeliveryStatus = 'pending' | 'sending' | 'failed'

export type DeliverySummary = {
  id: bigint
  status: DeliveryStatus
  /** of the format `members`; null for `line` */
  type: string | null
  /** null: no member, or unknown */
  memberId: bigint | null
  displayName: string | null
  /** of the format `line`; null for `members` */
  events: number | null
  /** the first of the events; null: none, unknown, or a replay */
  eventId: bigint | null
  kind: string | null
  userId: string | null
  isReplay: boolean
  attempts: number
  createdAt: string
  /** null for failed deliveries */
  dueAt: string | null
  failedAt: string | null
  lastStatus: number | null
  lastAnswer: string | null
}

/** Of a row d of endpoint_delivery. */
export const DELIVERY_STATUS = `case when d.failed_at is not null then 'failed'
                when not is_due(d.leased_until, interval '30 seconds') then 'sending' when d.id is not null then 'pending' end`
/** Of a delivery d with its event e and its member m, each of which may be missing. */
export const DELIVERY_COLUMNS = `d.type, coalesce(d.member_id, m.id) as "memberId", m.display_name as "displayName",
           coalesce(cardinality(d.event_keys), cardinality(d.event_ids)) as events, e.id as "eventId", e.kind, e.user_id as "userId",
           d.job_id is not null or d.event_ids is not null as "isReplay",
           case when d.failed_at is null then iso(d.due_at) end as "dueAt", iso(d.failed_at) as "failedAt",
           d.status as "lastStatus", d.answer as "lastAnswer"`
/** Planner idioms: docs/planner.md. */
export const MEMBER_OF_EVENT = `select id, display_name from audience_member
           where channel_oa_id = e.channel_oa_id and user_id between e.user_id and e.user_id order by user_id limit 1`
const WITH_EVENT_AND_MEMBER = `d.id, ${DELIVERY_STATUS} as status, d.attempts, iso(d.created_at) as "createdAt", ${DELIVERY_COLUMNS}
      from listed d
      left join lateral (
        select channel_oa_id, id, kind, user_id from event
         where channel_oa_id = d.channel_oa_id and key = d.event_keys[1] and is_forwarded and received_at >= d.created_at limit 1) e on true
      left join lateral (
        (${MEMBER_OF_EVENT})
         union all
        (select id, display_name from audience_member
          where channel_oa_id = d.channel_oa_id and id >= d.member_id and id <= d.member_id order by id limit 1)) m on true`

const selectFailedDeliveries = statement('select-failed-deliveries')`
    with listed as materialized (
      select * from endpoint_delivery
       where endpoint_id = $1 and failed_at is not null and id < $2
       order by id desc limit $3
    )
    select ${WITH_EVENT_AND_MEMBER} order by d.id desc`

const selectPendingDeliveries = statement('select-pending-deliveries')`
    with listed as materialized (
      select * from endpoint_delivery where endpoint_id = $1 and failed_at is null order by due_at limit $2
    )
    select ${WITH_EVENT_AND_MEMBER} order by d.due_at`

/** The newest failed ones, or the pending ones that are due first, whose order changes with each attempt. */
export function listDeliveries(
  database: Queryable,
  endpointId: bigint,
  status: 'pending' | 'failed',
  { beforeId = INT64_MAX, limit }: { beforeId?: bigint; limit: number },
): Promise<DeliverySummary[]> {
  return status === 'failed'
    ? database.query(selectFailedDeliveries, [endpointId, beforeId, limit])
    : database.query(selectPendingDeliveries, [endpointId, limit])
}

export type DeliveryAttempt = {
  startedAt: string
  /** null: there was no HTTP response */
  status: number | null
  /** why there was no response, otherwise empty */
  reason: string
  /** the beginning of a response that was not 2xx; null: none, or deleted by an erasure or an unsent message */
  responseText: string | null
  durationMs: number
  /** null: unknown */
  events: number | null
  /** 1 for the first attempt of the delivery */
  attempt: number
  deliveryId: bigint
}

const selectAttempts = statement('select-endpoint-attempts')`
    select iso(started_at) as "startedAt", status, reason, response_text as "responseText", duration_ms as "durationMs", events, attempt,
           delivery_id as "deliveryId"
      from endpoint_attempt
     where endpoint_id = $1
     order by started_at desc, delivery_id desc, attempt desc`

/** Refused ones, newest first. */
export function listAttempts(database: Queryable, endpointId: bigint): Promise<DeliveryAttempt[]> {
  return database.query<DeliveryAttempt>(selectAttempts, [endpointId])
}

/** Of one hour; the average duration. An hour without attempts is left out. */
export type EndpointHour = { hour: string; accepted: number; refused: number; durationMs: number }

const selectHours = statement('select-endpoint-hours')`
    select iso(hour) as hour, attempts - refused as accepted, refused, (duration_ms / attempts)::int as "durationMs"
      from endpoint_hour
     where endpoint_id = $1 and hour > now() - ${HOURS_KEPT} * interval '1 hour'
     order by hour`

export function listHours(database: Queryable, endpointId: bigint): Promise<EndpointHour[]> {
  return database.query<EndpointHour>(selectHours, [endpointId])
}

export interface DeliveryRequest {
  url: string
  /** with signatures masked: each is valid for this body */
  headers: Record<string, string>
  /** null: nothing would be sent, because the content was erased or a secret is missing */
  body: string | null
}

function previewOf(keys: SecretKeys, content: ContentRow, nowMs: number): Message | null {
  try {
    return writeMessage(keys, content, nowMs)
  } catch (error) {
    if (error instanceof MissingSecret) return null
    throw error
  }
}

const SIGNATURE_HEADERS = ['x-line-signature', 'webhook-signature']

/** The request as it would be sent now. */
export async function previewDelivery(
  database: Queryable,
  { id: endpointId, accountId }: Pick<EndpointSummary, 'id' | 'accountId'>,
  deliveryId: bigint,
  nowMs: number,
): Promise<DeliveryRequest> {
  const [content] = await database.query<ContentRow>(loadContents, [[accountId], [deliveryId]])
  if (content?.endpoint_id !== endpointId) throw new NotVisible('delivery', deliveryId)
  const message = previewOf(database.secretKeys, content, nowMs)
  const headers = Object.entries(message?.headers ?? {}).map(([name, value]) => [
    name,
    SIGNATURE_HEADERS.includes(name) ? '•••' : value,
  ])
  return {
    url: printableUrl(content.url),
    headers: Object.fromEntries(headers),
    body: message?.body ?? null,
  }
}
