/** Endpoints and what is still to be sent to them, as operators see them: never with a secret or the content of a delivery. */
import type { AccountId } from '../accounts/account.ts'
import type { EndpointFormat } from '../endpoints/manage.ts'
import type { Queryable } from '../postgres/statement.ts'

/** Deliveries counted per endpoint and state. Above this the exact number says nothing more, and counting takes long. */
export const COUNTED_MAX = 10_000
/** Characters of an answer in one line. */
const ANSWER_LINE_MAX = 120

export interface EndpointSummary {
  id: bigint
  accountId: AccountId
  name: string
  url: string
  format: EndpointFormat
  /** null: all */
  events: string[] | null
  replies: boolean
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
  lastAnswer: LastAnswer | null
}

export interface LastAnswer {
  at: string
  /** null: there was no HTTP response */
  status: number | null
  text: string
}

/**
 * The oldest pending delivery is found among the first $2 that are due and the first $2 of the account. It is exact unless the
 * endpoint has more pending ones, and as many older deliveries of the account's other endpoints are stored.
 *
 * $1 account id bigint, null: all accounts; $2 rows counted int
 */
const selectEndpoints = `
  select p.id, p.channel_oa_id as "accountId", p.name, p.url, p.format, p.events, p.replies, p.status,
         p.allow_private_network as "allowPrivateNetwork", p.previous_secret is not null as "isRotating",
         to_char(p.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
         pending.count as pending, failed.count as failed,
         extract(epoch from now() - least(pending.first_at, (
           select min(created_at)
             from (select endpoint_id, failed_at, created_at from endpoint_delivery
                    where pending.count = $2 and channel_oa_id = p.channel_oa_id order by id limit $2) d
            where endpoint_id = p.id and failed_at is null)))::float8 as "oldestPendingSeconds",
         to_char(x.answered_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "answeredAt",
         x.status as "answerStatus", x.answer
    from endpoint p
    left join endpoint_answer x on x.endpoint_id = p.id
   cross join lateral (
     select count(*)::int as count, min(created_at) as first_at
       from (select created_at from endpoint_delivery
              where endpoint_id = p.id and failed_at is null order by due_at limit $2) d) pending
   cross join lateral (
     select count(*)::int as count
       from (select from endpoint_delivery where endpoint_id = p.id and failed_at is not null limit $2) d) failed
   where $1::bigint is null or p.channel_oa_id = $1
   order by p.id`

type EndpointRow = Omit<EndpointSummary, 'lastAnswer'> & {
  answeredAt: string | null
  answerStatus: number | null
  answer: string | null
}

/** @param accountId null: all accounts */
export async function listEndpoints(
  database: Queryable,
  accountId: AccountId | null,
): Promise<EndpointSummary[]> {
  const rows = await database.query<EndpointRow>(selectEndpoints, [accountId, COUNTED_MAX])
  return rows.map(({ answeredAt, answerStatus, answer, ...endpoint }) => ({
    ...endpoint,
    lastAnswer: answeredAt === null ? null : { at: answeredAt, status: answerStatus, text: answer ?? '' },
  }))
}

/** An answer in one line: `500 upstream timed out`, or why there was none. */
export function answerLine(status: number | null, text: string): string {
  const line = text.replace(/\s+/g, ' ').trim()
  const short = line.length > ANSWER_LINE_MAX ? `${line.slice(0, ANSWER_LINE_MAX)}…` : line
  return status === null ? short : `${status} ${short}`.trim()
}

/** A count that stops at COUNTED_MAX: `10000+`. */
export const countText = (count: number): string => (count < COUNTED_MAX ? String(count) : `${count}+`)

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
  attempts: number
  createdAt: string
  /** null for failed deliveries */
  dueAt: string | null
  failedAt: string | null
  lastStatus: number | null
  lastAnswer: string | null
}

/**
 * Failed ones first, then those that are due next. Each half reads an index of its own.
 *
 * $1 endpoint id bigint; $2 boolean: failed deliveries; $3 boolean: pending deliveries; $4 maximum number of rows int
 */
const selectDeliveries = `
  select id, case when failed_at is not null then 'failed' when leased_until > now() then 'sending' else 'pending' end as status,
         type, member_id as "memberId", cardinality(event_keys) as events, attempts,
         to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
         case when failed_at is null
              then to_char(due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as "dueAt",
         to_char(failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "failedAt",
         d.answer_status as "lastStatus", answer as "lastAnswer"
    from ((select 1 as half, d.status as answer_status, d.* from endpoint_delivery d
            where $2 and endpoint_id = $1 and failed_at is not null order by id limit $4)
          union all
          (select 2, d.status, d.* from endpoint_delivery d
            where $3 and endpoint_id = $1 and failed_at is null order by due_at limit $4)) d
   order by half, case half when 1 then id end, due_at limit $4`

/** @param status null: pending and failed ones */
export function listDeliveries(
  database: Queryable,
  endpointId: bigint,
  status: 'pending' | 'failed' | null,
  limit: number,
): Promise<DeliverySummary[]> {
  const values = [endpointId, status !== 'pending', status !== 'failed', limit]
  return database.query<DeliverySummary>(selectDeliveries, values)
}

/** $1 endpoint id bigint */
const selectExists = `select from endpoint where id = $1`

export async function endpointExists(database: Queryable, id: bigint): Promise<boolean> {
  return (await database.query(selectExists, [id])).length > 0
}
