/**
 * Counts follows and unfollows by day, to compare them with LINE's statistics. An index on these events would slow every delivery, so
 * this reads the partitions of the last days. A day is counted soon after it has ended, and again a day later, when late deliveries
 * have arrived.
 */
import { LINE_DAY_START, LINE_TODAY } from '../../line-api/line-day.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'

/** Days of LINE that have ended and are due to be counted. They begin at 15:00 UTC. */
const selectUncountedDays = statement('select-uncounted-days')`
    select ended.day::date::text as day
      from generate_series(${LINE_TODAY} - 2,
                           ${LINE_TODAY} - 1, interval '1 day') as ended (day)
     where exists (
       select from official_account a
         left join account_day d on d.channel_oa_id = a.id and d.day = ended.day::date
        where a.created_at < ended.day - interval '9 hours'
          and (d.events_counted_at is null
               or d.events_counted_at < ended.day + interval '39 hours' and now() > ended.day + interval '39 hours'))`

/**
 * Accounts that were added during the day are left out, because LINE counts the whole day. An erased event keeps its kind and time,
 * and counts as a first follow.
 *
 * $1 text: day
 */
const countFollowsOfDay = statement('count-follows')`
    with follow as (
      select channel_oa_id, kind,
             kind = 'follow' and payload is not null
               and payload::jsonb @> '{"follow": {"isUnblocked": true}}' as is_return
        from event
       where kind in ('follow', 'unfollow') and source = 'line' and failure is null
         and occurred_at >= ${LINE_DAY_START}
         and occurred_at < ${LINE_DAY_START} + interval '24 hours'
         and received_at >= ${LINE_DAY_START}
    ), counted as (
      select channel_oa_id, count(*) filter (where kind = 'follow' and not is_return) as first_follows,
             count(*) filter (where is_return) as returns, count(*) filter (where kind = 'unfollow') as unfollows
        from follow group by channel_oa_id
    )
    insert into account_day as d (channel_oa_id, day, first_follows, returns, unfollows, events_counted_at)
    select a.id, $1::date, coalesce(c.first_follows, 0), coalesce(c.returns, 0), coalesce(c.unfollows, 0), now()
      from official_account a left join counted c on c.channel_oa_id = a.id
     where a.created_at < ${LINE_DAY_START}
        on conflict (channel_oa_id, day) do update set
           first_follows = excluded.first_follows, returns = excluded.returns, unfollows = excluded.unfollows,
           events_counted_at = excluded.events_counted_at`

export async function countFollows(session: Queryable): Promise<void> {
  const days = await session.query<{ day: string }>(selectUncountedDays)
  for (const { day } of days) await session.query(countFollowsOfDay, [day])
}
