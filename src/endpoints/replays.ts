/**
 * Replays and resends: jobs that put a bounded number of rows into endpoint_delivery, from where the sender sends them like all
 * others. Their content is read when they are sent, so what was erased or unsent meanwhile is absent.
 * Planner idioms: docs/planner.md.
 */
import { refuseRequest, requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { readTime } from '../http/times.ts'
import { refuseInput } from '../http/validate.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { pipelineIn, type Queryable, statement } from '../postgres/statement.ts'
import { checkEventTypes, type EndpointFormat } from './event-types.ts'

/** Events or members per second. An endpoint that handles live traffic handles this in addition: 10 requests of 5 events. */
export const RATE_DEFAULT = 50
/** 10 requests per second of 100 events, which one request in flight reaches if it is answered within 50 ms. */
export const RATE_MAX = 1_000

/** Counting more takes long and does not change what an operator decides. */
const COUNTED_EVENTS_MAX = 1_000_000
/** Events of one statement: some 3 ms, or 1 s if each is a random read of 0.5 ms on a cold disk. A statement may take 5 s. */
const COUNTED_PER_STATEMENT = 2_000
/**
 * Events of a flush have the time of its beginning, and its statements take 5 s at most. So all events of an earlier range are visible.
 */
const FLUSH_MAX_SECONDS = 10
/** Less than a proxy in front of the console waits. */
const COUNT_MAX_MS = 5_000

export interface ReplayRequest {
  /** ISO 8601 in UTC; the range includes `from` and excludes `to` */
  from: string
  to: string
  /** kinds; null: all that the endpoint receives */
  events: string[] | null
  /** events per second */
  rate: number
}

export interface AskedReplay {
  from: string
  to: string
  events?: string[] | null | undefined
  rate?: number | undefined
}

export type ReplayableEndpoint = {
  id: bigint
  accountId: AccountId
  organizationId: OrganizationId
  format: EndpointFormat
  /** of the format `members`: what a resend sends */
  receivesUpdates: boolean
  /** events that were received before can be replayed */
  until: string
}

const selectEndpoint = statement('select-replayable-endpoint')`
    select p.id, a.id as "accountId", a.organization_id as "organizationId", p.format,
           receives_kind(p.events, 'member.updated') as "receivesUpdates", iso(now() - $3 * interval '1 second') as until
      from endpoint p join official_account a on a.id = p.channel_oa_id
     where p.id = $1 and visible(a.organization_id, $2)`

/** Throws NotVisible, and `invalid_input`. */
export async function findReplayable(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
  wanted: EndpointFormat,
): Promise<ReplayableEndpoint> {
  const values = [id, organizationIds, FLUSH_MAX_SECONDS]
  const [row] = await database.query<ReplayableEndpoint>(selectEndpoint, values)
  const endpoint = requireVisible(row, 'endpoint', id)
  if (endpoint.format === wanted) {
    if (wanted === 'line' || endpoint.receivesUpdates) return endpoint
    const message = `endpoint ${id} does not receive member.updated, which a resend sends. Add it to the events of the endpoint first.`
    refuseRequest(message)
  }
  const message =
    wanted === 'members'
      ? `endpoint ${id} has the format line, which receives events. Use "oa-audience endpoints replay ${id}" instead.`
      : `endpoint ${id} has the format members, which receives the state of members. Use "oa-audience endpoints resend ${id}" instead.`
  refuseRequest(message)
}

/** Throws NotVisible, and `invalid_input`. */
export async function planReplay(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
  { from, to, events = null, rate = RATE_DEFAULT }: AskedReplay,
): Promise<{ endpoint: ReplayableEndpoint; request: ReplayRequest }> {
  const endpoint = await findReplayable(database, organizationIds, id, 'line')
  if (events?.length === 0) refuseInput('events', 'is empty. Omit it to send all events.')
  checkEventTypes('line', events)
  const begin = isoTime('from', from)
  const end = [isoTime('to', to), endpoint.until].sort()[0] as string
  if (begin >= end)
    refuseInput('from', `must be earlier than \`to\`, and ${FLUSH_MAX_SECONDS} seconds before now`)
  return { endpoint, request: { from: begin, to: end, events, rate } }
}

const isoTime = (field: 'from' | 'to', text: string): string => new Date(readTime(field, text)).toISOString()

/** In microseconds. Before all events that were received at this time. */
export const beforeEventsAt = (receivedAt: string) => ({ receivedAt, id: String(INT64_MIN) })

/**
 * The next events of a range. Those of one account are almost in the order of the table, so reading them costs little more than
 * reading the index.
 *
 * $1 account id bigint; $2 timestamptz and $3 bigint: after this event; $4 end of the range timestamptz; $5 kinds text[], null: all;
 * $6 endpoint id bigint; $7 events examined int
 */
const EXAMINED = `stored as materialized (
      select id, received_at, octet_length(payload) as bytes, kind, user_id,
             case when source = 'line' and payload is not null and receives_kind($5, kind) then $1::bigint end as asked_account,
             row_number() over (order by received_at, id) as position
        from event
       where channel_oa_id = $1 and received_at > '-infinity' and received_at >= $2 and (received_at, id) > ($2, $3) and received_at < $4
       order by received_at, id limit $7
    ), received as materialized (
      select event as position
        from (select array_agg(asked_account order by position) as account_ids, array_agg(kind order by position) as kinds,
                     array_agg(user_id order by position) as user_ids from stored) asked
       cross join endpoints_of(account_ids, kinds, user_ids, $6)
    ), examined as materialized (
      select id, received_at, bytes, position in (select position from received) as is_replayed from stored
    )`
const POSITION = `to_char(received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "receivedAt", id::text`

const countEvents = statement('count-replayed-events')`
    with ${EXAMINED}
    select counted.*, last.*
      from (select count(*)::int as examined, (count(*) filter (where is_replayed))::int as count from examined) counted
      left join (select ${POSITION} from examined order by received_at desc, examined.id desc limit 1) last on true`

type Counted = { examined: number; count: number; receivedAt: string; id: string }

/** @returns `isMore`: there are more, because the count stops at COUNTED_EVENTS_MAX, and after COUNT_MAX_MS */
export async function countReplay(
  database: Queryable,
  { accountId, id }: Pick<ReplayableEndpoint, 'accountId' | 'id'>,
  { from, to, events }: ReplayRequest,
  { maxMs = COUNT_MAX_MS, perStatement = COUNTED_PER_STATEMENT } = {},
): Promise<{ events: number; isMore: boolean }> {
  const deadline = performance.now() + maxMs
  let after = beforeEventsAt(from)
  for (let total = 0; ; ) {
    const values: unknown[] = [accountId, after.receivedAt, after.id, to, events, id, perStatement]
    const [row] = (await database.query<Counted>(countEvents, values)) as [Counted]
    total += row.count
    if (total > COUNTED_EVENTS_MAX) return { events: COUNTED_EVENTS_MAX, isMore: true }
    if (row.examined < perStatement) return { events: total, isMore: false }
    if (performance.now() > deadline) return { events: total, isMore: true }
    after = { receivedAt: row.receivedAt, id: row.id }
  }
}

/** How long a replay takes at its rate, if the endpoint is fast enough. */
export const secondsOf = (items: number, rate: number): number => Math.ceil(items / rate)

/**
 * Queues the next events of a replay as one delivery. Only as many events are examined as probably fit, so the last examined event
 * may be far from the end. $8 maximum number of events int; $9 maximum bytes int; $10 job id bigint
 */
export const queueEvents = statement('queue-replayed-events')`
    with ${EXAMINED}, counted as (
      select *, count(*) filter (where is_replayed) over earlier as number, sum(bytes) filter (where is_replayed) over earlier as total
        from examined window earlier as (order by received_at, id rows unbounded preceding)
    ), taken as materialized (
      select * from counted where number <= 1 or (number <= $8 and total <= $9)
    ), delivery as (
      select array_agg(id order by received_at, id) as ids, min(received_at) as first_at, max(received_at) as last_at
        from taken where is_replayed
    ), queued as (
      insert into endpoint_delivery (channel_oa_id, endpoint_id, job_id, event_ids, events_from, events_until, replies, attempts)
      select $1, $6, $10, ids, first_at, last_at, false, 1 from delivery where ids is not null
    )
    select coalesce(cardinality((select ids from delivery)), 0) as queued,
           (select count(*) from examined) < $7 and (select count(*) from taken) = (select count(*) from examined) as "isLast", last.*
      from (select) always
      left join (select ${POSITION} from taken order by received_at desc, taken.id desc limit 1) last on true`

/**
 * Queues the present state of members. If an earlier change of a member is not sent yet, that delivery has the present state already.
 * If it has failed, it becomes due, and stays after the job.
 *
 * $1 account id bigint, $2 endpoint id bigint, $3 job id bigint, $4 member ids bigint[]
 */
export const queueMembers = statement('queue-resent-members')`
    insert into endpoint_delivery as d (channel_oa_id, endpoint_id, job_id, type, member_id, change, attempts)
    select m.channel_oa_id, $2, $3, 'member.updated', m.id, m.change, 1
      from unnest($4::bigint[]) as u (id)
     cross join lateral (
       select channel_oa_id, id, change from audience_member where channel_oa_id = $1 and id = u.id offset 0) m
     order by m.id
        on conflict (channel_oa_id, endpoint_id, member_id) where member_id is not null do update
           set type = excluded.type, change = excluded.change, attempts = excluded.attempts, failed_at = null, first_attempt_at = null,
               due_at = now(), leased_until = '-infinity'
         where d.failed_at is not null`

/**
 * Locks rows in the order in which the sender settles them. `+ 0` prevents the use of the primary key for that order, which would read
 * the deliveries of all accounts.
 */
const lockDeliveries = statement('lock-deliveries-of-job')`
    select from endpoint_delivery where job_id = $1 order by channel_oa_id + 0, id + 0 for update`

/**
 * Ends the deliveries of a job: unsent ones are deleted, and failed ones stay for operators. A join with the locked rows may read
 * the deliveries of all accounts, and so may `failed_at is null`.
 */
const endDeliveries = statement('end-deliveries-of-job')`
    with kept as (
      update endpoint_delivery set job_id = null where job_id = $1 and coalesce(failed_at, 'infinity') < 'infinity'
    )
    delete from endpoint_delivery where job_id = $1 and coalesce(failed_at, 'infinity') = 'infinity'`

export async function endDeliveriesOfJob(transaction: Queryable, jobId: bigint): Promise<void> {
  await pipelineIn(transaction)([
    { statement: lockDeliveries, values: [jobId] },
    { statement: endDeliveries, values: [jobId] },
  ])
}
