/** Counts the days of an account for the report: docs/report.md defines each figure. Planner idioms: docs/planner.md. */
import type { AccountId } from '../ids.ts'
import { LINE_TODAY, lineDayEnd, lineDayOf } from '../line-api/line-day.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/**
 * Days that are counted again each time, so that late, retried and replayed events appear: the present month and the month before. An event that
 * arrives more than 62 days after it happened does not change the report.
 */
const COUNTED_DAYS = 62

const SINCE = `${LINE_TODAY} - ${COUNTED_DAYS - 1}`

/**
 * The first day of LINE whose events are all still kept. Retention may have deleted events of earlier days, so their stored counts never
 * decrease.
 */
const KEPT_SINCE = `(coalesce((select ${lineDayOf('received_at')} + 1 from event
                                where channel_oa_id = $1 and received_at > '-infinity' order by received_at limit 1), ${LINE_TODAY}))`

const ENDED_AT = lineDayEnd('d.day')

/**
 * Counts events into account_day, also days without any since the account was added. Rows change only with their figures, and once after the
 * day has ended. $1 bigint: account
 */
const countDays = statement('count-account-days')`
    with counted as (
      select day, max(first_follows) as first_follows, max(returns) as returns, max(unfollows) as unfollows, max(blocked) as blocked
        from (select day, count(*) filter (where kind = 'new') as first_follows, count(*) filter (where kind = 'return') as returns,
                     count(*) filter (where kind = 'block') as unfollows, count(*) filter (where is_blocked_within_7_days) as blocked
                from follow_events($1, ${SINCE}) group by day
               union all
              select day, first_follows, returns, unfollows, blocked_within_7_days from account_day
               where channel_oa_id = $1 and day >= ${SINCE} and day < ${KEPT_SINCE} and first_follows is not null
               union all
              select day::date, 0, 0, 0, 0
                from official_account a
               cross join generate_series(least(greatest(${lineDayOf('a.created_at')}, ${KEPT_SINCE}, ${SINCE}),
                                                ${LINE_TODAY}), ${LINE_TODAY}, interval '1 day') day
               where a.id = $1) part
       group by day
    ), stored as (
      insert into account_day as d (channel_oa_id, day, first_follows, returns, unfollows, blocked_within_7_days, events_counted_at)
      select $1, day, first_follows, returns, unfollows, blocked, now() from counted
          on conflict (channel_oa_id, day) do update set
             first_follows = excluded.first_follows, returns = excluded.returns, unfollows = excluded.unfollows,
             blocked_within_7_days = excluded.blocked_within_7_days, events_counted_at = excluded.events_counted_at
       where (d.first_follows, d.returns, d.unfollows, d.blocked_within_7_days)
             is distinct from (excluded.first_follows, excluded.returns, excluded.unfollows, excluded.blocked_within_7_days)
          or d.events_counted_at < ${ENDED_AT} and now() >= ${ENDED_AT}
    )
    select (select source from audience_member where channel_oa_id = $1 and source is not null order by source limit 1) is not null
           or exists (select from source_day where channel_oa_id = $1) as has_sources`

/**
 * Counts the events of people with a source, and the members by the day of their first follow. Earlier days than those counted keep the figures
 * of their events. $1 bigint: account
 */
const countSourceDays = statement('count-source-days')`
    with part as (
      select f.day, m.source, count(*) filter (where f.kind = 'new') as first_follows, count(*) filter (where f.kind = 'return') as returns,
             count(*) filter (where f.kind = 'block') as unfollows, count(*) filter (where f.is_blocked_within_7_days) as blocked,
             0 as following, 0 as active
        from follow_events($1, ${SINCE}) f
       cross join lateral (select source from audience_member
                            where channel_oa_id = $1 and user_id between f.user_id and f.user_id order by user_id limit 1) m
       where m.source is not null
       group by f.day, m.source
       union all
      select ${lineDayOf('coalesce(m.first_followed_at, m.followed_at)')}, m.source, 0, 0, 0, 0,
             count(*) filter (where m.relationship = 'following'),
             count(*) filter (where greatest(m.last_seen_at, t.last_seen_at) > now() - interval '30 days')
        from audience_member m
        left join lateral (select last_seen_at from tracked_activity
                            where channel_oa_id = $1 and user_id = m.user_id offset 0) t on true
       where m.channel_oa_id = $1 and m.source is not null
       group by 1, 2
       union all
      select day, source, case when is_kept then 0 else first_follows end, case when is_kept then 0 else returns end,
             case when is_kept then 0 else unfollows end, case when is_kept then 0 else blocked_within_7_days end, 0, 0
        from (select *, day >= ${SINCE} and day >= ${KEPT_SINCE} as is_kept from source_day where channel_oa_id = $1) s
    ), counted as materialized (
      select day, source, max(first_follows) as first_follows, max(returns) as returns, max(unfollows) as unfollows, max(blocked) as blocked,
             max(following) as following, max(active) as active
        from part where day is not null group by day, source
    ), gone as (
      -- Of a person who was erased, or whose source is another one by now.
      delete from source_day
       where (channel_oa_id, day, source) in (
         select $1, day, source from counted where first_follows + returns + unfollows + blocked + following + active = 0)
    )
    insert into source_day as d (channel_oa_id, day, source, first_follows, returns, unfollows, blocked_within_7_days, following, active)
    select $1, day, source, first_follows, returns, unfollows, blocked, following, active
      from counted where first_follows + returns + unfollows + blocked + following + active > 0
        on conflict (channel_oa_id, day, source) do update set
           first_follows = excluded.first_follows, returns = excluded.returns, unfollows = excluded.unfollows,
           blocked_within_7_days = excluded.blocked_within_7_days, following = excluded.following, active = excluded.active
     where (d.first_follows, d.returns, d.unfollows, d.blocked_within_7_days, d.following, d.active)
           is distinct from (excluded.first_follows, excluded.returns, excluded.unfollows, excluded.blocked_within_7_days,
                             excluded.following, excluded.active)`

/** Returns whether the account has sources, whose days are counted apart. */
export async function countAccountDays(database: Queryable, id: AccountId): Promise<boolean> {
  const [counted] = await database.query<{ has_sources: boolean }>(countDays, [id])
  return counted?.has_sources ?? false
}

/** A million members with a source take seconds, so the session has no time limit. */
export async function countDaysOfSources(session: Queryable, id: AccountId): Promise<void> {
  await session.query(countSourceDays, [id])
}
