/** Endpoints and their open deliveries for operators, without secrets and content. */
import type { AccountId } from '../accounts/account.ts'
import type { Condition } from '../audience/condition.ts'
import { NotVisible, requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { printableUrl } from './address.ts'
import { type ContentRow, loadContents } from './backlog.ts'
import { messageIdOf, writeMessage } from './messages.ts'
import type { EndpointFormat } from './settings.ts'

/** Maximum count of deliveries per endpoint and state. Counting more takes long and does not help the operator. */
export const COUNTED_MAX = 10_000

export interface EndpointSummary {
  id: bigint
  accountId: AccountId
  accountName: string
  name: string
  /** without a query string, which may be a token: see printableUrl */
  url: string
  format: EndpointFormat
  /** null: all */
  events: string[] | null
  /** null: all people */
  condition: Condition | null
  replies: boolean
  /** of the endpoints that receive an event and have `replies`, the first by (priority, id) has its reply token */
  priority: number
  status: string
  allowPrivateNetwork: boolean
  /** receivers may still use the previous secret */
  isRotating: boolean
  createdAt: string
  /** at most COUNTED_MAX */
  pending: number
  /** at most COUNTED_MAX */
  failed: number
  /** null: nothing is pending */
  oldestPendingSeconds: number | null
  lastAnswer: LastResponse | null
}

interface LastResponse {
  at: string
  /** null: there was no HTTP response */
  status: number | null
  text: string
}

/**
 * The oldest pending delivery is found among the first $2 that are due and the first $2 of the account. It is exact unless the
 * endpoint has more pending ones, and as many older deliveries of the account's other endpoints are stored.
 *
 * $1 account id bigint, null: all accounts; $2 rows counted int; $3 endpoint ids bigint[], null: all; $4 after this id bigint;
 * $5 maximum number of rows int, null: all; $6 organization ids bigint[], null: all
 */
const selectEndpoints = statement('select-endpoints')`
    select p.id, p.channel_oa_id as "accountId", a.name as "accountName", p.name, p.url, p.format, p.events, p.condition, p.replies,
           p.priority, p.status,
           p.allow_private_network as "allowPrivateNetwork", p.previous_secret is not null as "isRotating",
           iso(p.created_at) as "createdAt",
           pending.count as pending, failed.count as failed,
           extract(epoch from now() - least(pending.first_at, (
             select min(created_at)
               from (select endpoint_id, failed_at, created_at from endpoint_delivery
                      where pending.count = $2 and channel_oa_id = p.channel_oa_id order by id limit $2) d
              where endpoint_id = p.id and failed_at is null)))::float8 as "oldestPendingSeconds",
           iso(x.answered_at) as "answeredAt",
           x.status as "answerStatus", x.answer
      from endpoint p
      join official_account a on a.id = p.channel_oa_id
      left join endpoint_answer x on x.endpoint_id = p.id
     cross join lateral (
       select count(*)::int as count, min(created_at) as first_at
         from (select created_at from endpoint_delivery
                where endpoint_id = p.id and failed_at is null order by due_at limit $2) d) pending
     cross join lateral (
       select count(*)::int as count
         from (select from endpoint_delivery where endpoint_id = p.id and failed_at is not null order by id limit $2) d) failed
     where ($1::bigint is null or p.channel_oa_id = $1) and ($3::bigint[] is null or p.id = any ($3)) and p.id > $4
       and visible(a.organization_id, $6)
     order by p.id
     limit $5`

type EndpointRow = Omit<EndpointSummary, 'lastAnswer'> & {
  answeredAt: string | null
  answerStatus: number | null
  answer: string | null
}

/** @param accountId null: all accounts */
export function listEndpoints(
  database: Queryable,
  organizationIds: OrganizationIds,
  accountId: AccountId | null,
  { afterId = INT64_MIN, limit = null }: { afterId?: bigint; limit?: number | null } = {},
): Promise<EndpointSummary[]> {
  return queryEndpoints(database, [accountId, COUNTED_MAX, null, afterId, limit, organizationIds])
}

/** Throws NotVisible. */
export async function findEndpoint(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<EndpointSummary> {
  const [endpoint] = await findEndpoints(database, organizationIds, [id])
  return requireVisible(endpoint, 'endpoint', id)
}

/** Returns the existing endpoints in the order of the ids. */
export function findEndpoints(
  database: Queryable,
  organizationIds: OrganizationIds,
  ids: bigint[],
): Promise<EndpointSummary[]> {
  return queryEndpoints(database, [null, COUNTED_MAX, ids, INT64_MIN, null, organizationIds])
}

async function queryEndpoints(database: Queryable, values: unknown[]): Promise<EndpointSummary[]> {
  const rows = await database.query<EndpointRow>(selectEndpoints, values)
  return rows.map(({ answeredAt, answerStatus, answer, ...endpoint }) => ({
    ...endpoint,
    url: printableUrl(endpoint.url),
    lastAnswer: answeredAt === null ? null : { at: answeredAt, status: answerStatus, text: answer ?? '' },
  }))
}

/** `sending`: a process has leased it. */
export type DeliveryStatus = 'pending' | 'sending' | 'failed'

export type DeliverySummary = {
  id: bigint
  status: DeliveryStatus
  /** of the format `members`; null for `line` */
  type: string | null
  memberId: bigint | null
  /** of the format `line`; null for `members` */
  events: number | null
  /** of a replay or a resend */
  isReplay: boolean
  attempts: number
  createdAt: string
  /** null for failed deliveries */
  dueAt: string | null
  failedAt: string | null
  lastStatus: number | null
  lastAnswer: string | null
}

/** Where a page of deliveries begins: after this one. */
interface DeliveryPosition {
  /** of pending deliveries, microseconds since 1970 */
  dueUs: bigint
  id: bigint
}

const DELIVERY_COLUMNS = `id, case when failed_at is not null then 'failed' when not is_due(leased_until, interval '30 seconds') then 'sending' else 'pending' end as status,
         type, member_id as "memberId", coalesce(cardinality(event_keys), cardinality(event_ids)) as events,
         job_id is not null or event_ids is not null as "isReplay", attempts,
         iso(created_at) as "createdAt",
         case when failed_at is null
              then iso(due_at) end as "dueAt",
         iso(failed_at) as "failedAt",
         status as "lastStatus", answer as "lastAnswer", (extract(epoch from due_at) * 1000000)::bigint as "dueUs"`

/** $1 endpoint id bigint; $2 after this id bigint; $3 maximum number of rows int */
const selectFailedDeliveries = statement('select-failed-deliveries')`
    select ${DELIVERY_COLUMNS}
      from endpoint_delivery
     where endpoint_id = $1 and failed_at is not null and id > $2
     order by id limit $3`

/** $1 endpoint id bigint; $2 and $3 after this time, in microseconds, and id bigint; $4 maximum number of rows int */
const selectPendingDeliveries = statement('select-pending-deliveries')`
    select ${DELIVERY_COLUMNS}
      from endpoint_delivery
     where endpoint_id = $1 and failed_at is null
       and due_at >= timestamptz 'epoch' + $2 * interval '1 microsecond'
       and (due_at, id) > (timestamptz 'epoch' + $2 * interval '1 microsecond', $3)
     order by due_at, id limit $4`

export interface DeliveryPage {
  deliveries: DeliverySummary[]
  /** null: there are no more */
  next: DeliveryPosition | null
}

/** Failed deliveries in the order of their ids, pending ones in the order in which they are due. */
export async function pageDeliveries(
  database: Queryable,
  endpointId: bigint,
  status: 'pending' | 'failed',
  after: DeliveryPosition | null,
  limit: number,
): Promise<DeliveryPage> {
  const { dueUs = 0n, id = INT64_MIN } = after ?? {}
  // One extra row shows whether another page follows.
  const rows =
    status === 'failed'
      ? await database.query<DeliveryRow>(selectFailedDeliveries, [endpointId, id, limit + 1])
      : await database.query<DeliveryRow>(selectPendingDeliveries, [endpointId, dueUs, id, limit + 1])
  const page = rows.slice(0, limit)
  const last = page.at(-1)
  return {
    deliveries: page.map(({ dueUs: _, ...delivery }) => delivery),
    next: last === undefined || rows.length <= limit ? null : { dueUs: last.dueUs, id: last.id },
  }
}

type DeliveryRow = DeliverySummary & { dueUs: bigint }

/** Failed ones first. @param status null: pending and failed ones */
export async function listDeliveries(
  database: Queryable,
  endpointId: bigint,
  status: 'pending' | 'failed' | null,
  limit: number,
): Promise<DeliverySummary[]> {
  const read = (half: 'pending' | 'failed') =>
    status === null || status === half ? pageDeliveries(database, endpointId, half, null, limit) : null
  const halves = [await read('failed'), await read('pending')]
  return halves.flatMap((half) => half?.deliveries ?? []).slice(0, limit)
}

export interface DeliveryRequest {
  url: string
  /** with signatures masked: each is valid for this body */
  headers: Record<string, string>
  /** null: nothing would be sent, because the content was erased or a secret is missing */
  body: string | null
}

const SIGNATURE_HEADERS = ['x-line-signature', 'webhook-signature']

/** Returns the request as it would be sent now. Throws NotVisible. */
export async function previewDelivery(
  database: Queryable,
  { id: endpointId, accountId }: Pick<EndpointSummary, 'id' | 'accountId'>,
  deliveryId: bigint,
  nowMs: number,
): Promise<DeliveryRequest> {
  const [content] = await database.query<ContentRow>(loadContents, [[accountId], [deliveryId]])
  if (content?.endpoint_id !== endpointId) throw new NotVisible('delivery', deliveryId)
  const message = writeMessage(database.secretKeys, content, messageIdOf(content), nowMs)
  const headers = Object.entries(message?.headers ?? {}).map(([name, value]) => [
    name,
    SIGNATURE_HEADERS.includes(name) ? '•••' : value,
  ])
  return {
    url: printableUrl(content.url),
    headers: Object.fromEntries(headers),
    body: message?.body.toString() ?? null,
  }
}
