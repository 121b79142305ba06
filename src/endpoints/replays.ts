/**
 * The deliveries of replays and resends: jobs that put a bounded number of rows into endpoint_delivery, from where the sender sends
 * them like all others. Their content is read when they are sent, so what was erased or unsent meanwhile is absent.
 * Planner idioms: docs/planner.md.
 */
import type { AccountId } from '../accounts/account.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { pipelineIn, type Queryable, type Row, statement } from '../postgres/statement.ts'

/** A receiver that refuses a request five times probably never accepts it, and what follows must not wait for it forever. */
const REFUSALS_MAX = 5

/**
 * Leaves refused deliveries as failed ones, which operators see and retry. `attempts` of these rows begins with 1. Responses 408, 410
 * and 429 refuse no content. The index of due deliveries has the condition "failed_at is null", which must not lead to it.
 *
 * $1 job id bigint, $2 maximum number of refusals int
 */
const leaveRefused = statement('leave-refused-deliveries')`
    with refused as (
      update endpoint_delivery set failed_at = now(), job_id = null
       where job_id = $1 and coalesce(failed_at, 'infinity') = 'infinity' and is_due(leased_until, interval '30 seconds') and attempts > $2
         and status between 400 and 499 and status <> all ('{408,410,429}')
      returning coalesce(cardinality(event_ids), 1) as items
    )
    select coalesce(sum(items), 0)::int as refused from refused`

const selectState = statement('select-replay-state')`
    select p.status, p.events, d.waiting, d."hasFailed", d."isRetrying", d."ageMs", d."dueInMs",
           (extract(epoch from clock_timestamp()) * 1000)::float8 as "nowMs"
      from endpoint p
     cross join lateral (
       select count(*) filter (where failed_at is null)::int as waiting,
              coalesce(bool_or(failed_at is not null), false) as "hasFailed",
              coalesce(bool_or(answer is not null), false) as "isRetrying",
              coalesce(extract(epoch from clock_timestamp() - min(created_at)) * 1000, 0)::float8 as "ageMs",
              coalesce(extract(epoch from min(due_at) - clock_timestamp()) * 1000, 0)::float8 as "dueInMs"
         from endpoint_delivery where job_id = $1) d
     where p.id = $2`

export interface ReplayState extends Row {
  /** of the endpoint */
  status: string
  /** the endpoint's own filter */
  events: string[] | null
  waiting: number
  /** A delivery has failed permanently. */
  hasFailed: boolean
  /** An unsent delivery was refused, or got no response. */
  isRetrying: boolean
  /** of the oldest unsent delivery; 0 without any */
  ageMs: number
  dueInMs: number
  /** by the clock of the database */
  nowMs: number
  /** events or members that the receiver has refused since the last look */
  refused: number
}

export async function examineReplay(
  transaction: Queryable,
  jobId: bigint,
  endpointId: bigint,
): Promise<ReplayState | null> {
  const [[left], [state]] = (await pipelineIn(transaction)([
    { statement: leaveRefused, values: [jobId, REFUSALS_MAX] },
    { statement: selectState, values: [jobId, endpointId] },
  ])) as [Row[], Row[]]
  return state === undefined ? null : ({ ...state, refused: left?.refused ?? 0 } as ReplayState)
}

interface EventPosition {
  /** in microseconds */
  receivedAt: string
  id: string
}

/** Before all events that were received at this time. */
export const beforeEventsAt = (receivedAt: string): EventPosition => ({
  receivedAt,
  id: '-9223372036854775808',
})

/** $5 and $6: the kinds of the replay and of the endpoint. */
export const IS_REPLAYED = `source = 'line' and payload is not null
                  and ($5::text[] is null or kind = any ($5)) and ($6::text[] is null or kind = any ($6))`

/**
 * Queues the next events of a replay as one delivery. Only as many events are examined as probably fit, so the last examined event
 * may be far from the end.
 *
 * $1 account id bigint; $2 timestamptz and $3 bigint: after this event; $4 end of the range timestamptz; $5 kinds text[], null: all;
 * $6 kinds of the endpoint text[], null: all; $7 maximum number of events int; $8 maximum bytes int; $9 events examined int;
 * $10 job id bigint; $11 endpoint id bigint
 */
const queueEvents = statement('queue-replayed-events')`
    with examined as materialized (
      select id, received_at, octet_length(payload) as bytes, ${IS_REPLAYED} as is_replayed
        from event
       where channel_oa_id = $1 and received_at > '-infinity' and received_at >= $2 and (received_at, id) > ($2, $3) and received_at < $4
       order by received_at, id limit $9
    ), counted as (
      select *, count(*) filter (where is_replayed) over earlier as number, sum(bytes) filter (where is_replayed) over earlier as total
        from examined window earlier as (order by received_at, id rows unbounded preceding)
    ), taken as materialized (
      select * from counted where number <= 1 or (number <= $7 and total <= $8)
    ), delivery as (
      select array_agg(id order by received_at, id) as ids, min(received_at) as first_at, max(received_at) as last_at
        from taken where is_replayed
    ), queued as (
      insert into endpoint_delivery (channel_oa_id, endpoint_id, job_id, event_ids, events_from, events_until, replies, attempts)
      select $1, $11, $10, ids, first_at, last_at, false, 1 from delivery where ids is not null
    )
    select coalesce(cardinality((select ids from delivery)), 0) as queued,
           (select count(*) from examined) < $9 and (select count(*) from taken) = (select count(*) from examined) as "isLast",
           to_char(last.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "receivedAt", last.id::text as id
      from (select) always
      left join (select received_at, id from taken order by received_at desc, id desc limit 1) last on true`

interface EventRange {
  accountId: AccountId
  endpointId: bigint
  jobId: bigint
  after: EventPosition
  until: string
  kinds: string[] | null
  endpointKinds: string[] | null
}

interface QueuedEvents {
  /** events of the delivery; 0: there is none */
  queued: number
  next: EventPosition
  /** The range has no more events. */
  isLast: boolean
}

export async function queueReplayedEvents(
  transaction: Queryable,
  { accountId, endpointId, jobId, after, until, kinds, endpointKinds }: EventRange,
  { maxEvents, maxBytes, examined }: { maxEvents: number; maxBytes: number; examined: number },
): Promise<QueuedEvents> {
  const [row] = await transaction.query<Row>(queueEvents, [
    accountId,
    after.receivedAt,
    after.id,
    until,
    kinds,
    endpointKinds,
    maxEvents,
    maxBytes,
    examined,
    jobId,
    endpointId,
  ])
  const { queued, isLast, receivedAt, id } = row as {
    queued: number
    isLast: boolean
    receivedAt: string | null
    id: string | null
  }
  return { queued, isLast, next: receivedAt === null || id === null ? after : { receivedAt, id } }
}

/**
 * Queues the present state of members. If an earlier change of a member is not sent yet, that delivery has the present state already.
 * If it has failed, it becomes due, and stays after the job.
 *
 * $1 account id bigint, $2 endpoint id bigint, $3 job id bigint, $4 member ids bigint[]
 */
const queueMembers = statement('queue-resent-members')`
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

export async function queueResentMembers(
  transaction: Queryable,
  { accountId, endpointId, jobId }: Pick<EventRange, 'accountId' | 'endpointId' | 'jobId'>,
  memberIds: bigint[],
): Promise<void> {
  await transaction.query(queueMembers, [accountId, endpointId, jobId, int8Array(memberIds)])
}

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
