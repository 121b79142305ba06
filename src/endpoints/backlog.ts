/** Statements that lease deliveries, read their contents, and store the results of attempts. Planner idioms: docs/planner.md. */
import { memberJson, withTrackedActivity } from '../audience/member.ts'
import { type Row, statement } from '../postgres/statement.ts'

export interface ClaimedRow extends Row {
  id: bigint
  channel_oa_id: bigint
  endpoint_id: bigint
  /** including the next one */
  attempts: number
  /** since the commit of the delivery */
  age_ms: number
}

export interface PendingRow extends Row {
  id: bigint
  /** Null: nothing was ever sent to the endpoint. */
  was_accepted: boolean | null
}

/**
 * A query for the ids of endpoints with pending or failed deliveries. It skips from endpoint to endpoint in the indexes, so its cost
 * grows with the number of these endpoints, not with the number of deliveries.
 */
export const ENDPOINTS_WITH_DELIVERIES = `
    with recursive pending (id) as (
      (select endpoint_id from endpoint_delivery where failed_at is null order by endpoint_id, due_at limit 1)
       union all
      select next.endpoint_id
        from pending
        join lateral (select endpoint_id from endpoint_delivery
                       where endpoint_id > pending.id and failed_at is null
                       order by endpoint_id, due_at limit 1) next on true
    ), failed (id) as (
      (select endpoint_id from endpoint_delivery where failed_at is not null order by endpoint_id, id limit 1)
       union all
      select next.endpoint_id
        from failed
        join lateral (select endpoint_id from endpoint_delivery
                       where endpoint_id > failed.id and failed_at is not null
                       order by endpoint_id, id limit 1) next on true
    )
    select id from pending union select id from failed`

/**
 * The next endpoints with pending deliveries, in the order of their ids. Each takes one index probe.
 *
 * $1 bigint: the id after which to begin; $2 int: how many.
 */
export const pendingEndpoints = statement('pending-endpoints')`
    with recursive pending (id, position) as (
      (select endpoint_id, 1 from endpoint_delivery
        where endpoint_id > $1 and failed_at is null order by endpoint_id, due_at limit 1)
       union all
      select next.endpoint_id, position + 1
        from pending
        join lateral (select endpoint_id from endpoint_delivery
                       where endpoint_id > pending.id and failed_at is null
                       order by endpoint_id, due_at limit 1) next on true
       where position < $2
    )
    select w.id, x.status between 200 and 299 as was_accepted
      from pending w
      left join lateral (select coalesce(status, 0) as status from endpoint_answer
                          where endpoint_id = w.id offset 0) x on true
     order by w.position`

/**
 * Leases deliveries that are due, the oldest of each endpoint first. An endpoint has recovered if it accepts a delivery after several
 * failures in a row. Then its backlog is due, except for deliveries that were tried after the recovery. A retry is due within 2 hours
 * (LAST_RETRY_MS).
 *
 * $1 bigint[]: endpoints; $2 int[]: how many deliveries each may take; $3 int[]: milliseconds since the recovery, null for
 * none; $4 int: milliseconds of the lease.
 */
export const claimDue = statement('claim-due-deliveries')`
    with due as materialized (
      select d.channel_oa_id, d.id
        from unnest($1::bigint[], $2::int[], $3::int[]) as w (endpoint_id, room, recovered_ms)
        join lateral (select from endpoint where id = w.endpoint_id and status = 'active' offset 0) p on true
       cross join due_ranges(interval '2 hours') range
        join lateral (
          select channel_oa_id, id from endpoint_delivery
           where endpoint_id = w.endpoint_id and failed_at is null and is_due(leased_until, $4 * interval '1 millisecond')
             and due_at >= range.since and due_at < case when w.recovered_ms is null then range.until else 'infinity' end
             and (due_at < range.until or last_attempt_at < now() - w.recovered_ms * interval '1 millisecond')
           order by due_at limit w.room for update skip locked) d on true
    )
    update endpoint_delivery d
       set attempts = attempts + 1, leased_until = now() + $4 * interval '1 millisecond'
      from due
     where d.channel_oa_id = due.channel_oa_id and d.id = due.id
    returning d.id, d.channel_oa_id, d.endpoint_id, d.attempts,
              (extract(epoch from clock_timestamp() - d.created_at) * 1000)::float8 as age_ms`

export interface EndpointRow extends Row {
  id: bigint
  channel_oa_id: bigint
  status: string
  url: string
  allow_private_network: boolean
  format: 'line' | 'members'
  can_sign: boolean
}

/** $1 bigint[]: endpoints. */
export const loadEndpoints = statement('load-endpoints')`
    select p.id, p.channel_oa_id, p.status, p.url, p.allow_private_network, p.format,
           coalesce(case p.format when 'line' then a.channel_secret else p.secret end, '') ~ '\\S' as can_sign
      from unnest($1::bigint[]) as w (id)
      join lateral (select * from endpoint where id = w.id offset 0) p on true
      join lateral (select * from official_account where id = p.channel_oa_id offset 0) a on true`

/**
 * Makes erasures of the accounts wait until releaseSending. Returns the accounts for which no erasure waits. Send it before
 * loadContents, because a statement sees what was committed before it began.
 *
 * $1 bigint[]: accounts.
 */
export const holdSending = statement('hold-sending')`select hold_sending($1) as held`

/** $1 bigint[]: accounts. Returns the accounts for which no erasure waits. */
export const renewSending = statement('renew-sending')`select without_waiting_erasure($1) as held`

/** $1 bigint[]: accounts. */
export const releaseSending = statement('release-sending')`select release_sending($1)`

export interface ContentRow extends Row {
  id: bigint
  channel_oa_id: bigint
  endpoint_id: bigint
  status: string
  url: string
  allow_private_network: boolean
  format: 'line' | 'members'
  /** Reply tokens were the endpoint's when the events were received, and it still may have them. */
  replies: boolean
  /** for each of `events` whether its token was; null: for all */
  repliesTo: boolean[] | null
  secret: string | null
  previous_secret: string | null
  channel_secret: string | null
  destination: string | null
  attempts: number
  /** null for members */
  event_count: number | null
  /** since 1970 */
  created_ms: bigint
  type: string | null
  change: bigint | null
  /** JSON texts, separated by commas, without erased and unsent content */
  events: string | null
  data: string | null
}

/** $1 bigint[]: accounts; $2 bigint[]: deliveries. A delivery that no longer exists is left out. */
export const loadContents = statement('load-delivery-contents')`
    select d.id, d.channel_oa_id, d.endpoint_id, p.status, p.url, p.allow_private_network, p.format,
           p.replies and d.replies is not false as replies, p.secret, p.previous_secret,
           a.channel_secret, coalesce(d.destination, a.bot_user_id) as destination, d.attempts, d.type, d.change,
           coalesce(cardinality(d.event_keys), cardinality(d.event_ids)) as event_count,
           (extract(epoch from d.created_at) * 1000)::bigint as created_ms,
           case when d.event_ids is null then received.events
           -- Of a replay. An unsend and an erasure delete the payload.
           else (select string_agg(e.payload, ',' order by e.received_at, e.id)
                   from event e
                  where e.channel_oa_id = d.channel_oa_id and e.received_at > '-infinity'
                    and e.received_at between d.events_from and d.events_until
                    and e.id = any (d.event_ids))
           end as events,
           received."repliesTo",
           case d.type
             when 'member.erased' then (
               select concat('{"id":"', x.id, '","deletedAt":"',
                             to_char(x.deleted_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), '"}')
                 from erased_member x
                where x.channel_oa_id = d.channel_oa_id and x.id >= d.member_id and x.id <= d.member_id order by x.id limit 1)
             when 'account.verified' then a.verification::text
             -- An ordered range, which only the primary key supports. For an equality, a plan made while the table is empty may use
             -- another index, and later read the whole account.
             else (select ${memberJson} from audience_member m ${withTrackedActivity}
                    where m.channel_oa_id = d.channel_oa_id and m.id >= d.member_id and m.id <= d.member_id
                    order by m.id limit 1)
           end as data
      from unnest($1::bigint[], $2::bigint[]) as w (channel_oa_id, id)
      join lateral (select * from endpoint_delivery
                     where channel_oa_id = w.channel_oa_id and id = w.id offset 0) d on true
      join lateral (select * from endpoint where id = d.endpoint_id offset 0) p on true
      join lateral (select * from official_account where id = d.channel_oa_id offset 0) a on true
     cross join lateral (
       select string_agg(e.payload, ',' order by k.position) as events,
              case when d.reply_keys is not null
                   then array_agg(k.key = any (d.reply_keys) order by k.position) filter (where e.payload is not null)
              end as "repliesTo"
         from unnest(d.event_keys) with ordinality as k (key, position)
         join lateral (select payload from event e
                        where e.channel_oa_id = d.channel_oa_id and e.key = k.key and e.is_forwarded
                          and e.received_at >= d.created_at offset 0) e on true
        where d.event_ids is null) received`

/**
 * Deletes accepted deliveries. A member that changed during the attempt stays due.
 *
 * $1 bigint[]: accounts; $2 bigint[]: deliveries; $3 bigint[]: the change that was sent, null for none.
 */
export const completeDeliveries = statement('complete-deliveries')`
    with sent as materialized (
      select * from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as s (channel_oa_id, id, change)
       order by channel_oa_id, id
    ), completed as (
      delete from endpoint_delivery d using sent s
       where d.channel_oa_id = s.channel_oa_id and d.id = s.id and d.change is not distinct from s.change
      returning d.channel_oa_id, d.id
    )
    update endpoint_delivery d
       set attempts = 0, first_attempt_at = null, created_at = now(), due_at = now(), leased_until = '-infinity'
      from sent s
     where d.channel_oa_id = s.channel_oa_id and d.id = s.id and d.change is distinct from s.change`

/**
 * Stores failed attempts. After $7 hours of failed attempts, a delivery has failed permanently.
 *
 * $1 bigint[]: accounts; $2 bigint[]: deliveries; $3 int[]: status; $4 text[]: why there was no response; $5 int[]: milliseconds until
 * the next attempt; $6 int[]: milliseconds since the attempt began.
 */
export const postponeDeliveries = statement('postpone-deliveries')`
    update endpoint_delivery d
       set status = s.status, answer = s.answer, leased_until = '-infinity',
           last_attempt_at = now() - s.took_ms * interval '1 millisecond',
           first_attempt_at = coalesce(d.first_attempt_at, now() - s.took_ms * interval '1 millisecond'),
           due_at = now() + s.delay_ms * interval '1 millisecond',
           failed_at = case when d.first_attempt_at < now() - $7 * interval '1 hour' then now() end
      from unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::int[], $6::int[])
           as s (channel_oa_id, id, status, answer, delay_ms, took_ms)
     where d.channel_oa_id = s.channel_oa_id and d.id = s.id`

/**
 * Returns leased deliveries that were not tried. `due_at` stays, because moving it would write the index.
 *
 * $1 bigint[]: accounts; $2 bigint[]: deliveries.
 */
export const releaseDeliveries = statement('release-deliveries')`
    update endpoint_delivery d set attempts = greatest(0, attempts - 1), leased_until = '-infinity'
      from unnest($1::bigint[], $2::bigint[]) as s (channel_oa_id, id)
     where d.channel_oa_id = s.channel_oa_id and d.id = s.id`

/** Pauses an endpoint that responded with 410, and records it in the activity log. $1 bigint: endpoint. */
export const pauseEndpoint = statement('pause-endpoint')`
    with paused as (
      update endpoint set status = 'paused' where id = $1 and status = 'active' returning id, channel_oa_id)
    insert into activity (actor_kind, actor, action, organization_id, channel_oa_id, object_kind, object_id)
    select 'service', 'service', 'endpoint.gone', a.organization_id, a.id, 'endpoint', p.id::text
      from paused p join official_account a on a.id = p.channel_oa_id`
