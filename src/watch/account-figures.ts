/** Figures that are too slow for a page of all accounts: silences, the comparison with LINE's statistics, members. See docs/planner.md. */
import type { AccountId } from '../ids.ts'
import { LINE_TODAY, lineDayEnd, lineDayOf } from '../line-api/line-day.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseUnavailable } from '../postgres/faults.ts'
import { statement } from '../postgres/statement.ts'
import { countAccountDays, countDaysOfSources } from './account-days.ts'

const PASS_MAX = 100

/**
 * A lease of ten minutes. `is_outdated`: members are to be counted, because they have changed, or an hour has passed.
 *
 * A gap is a difference between LINE's statistics and the events of the same day. LINE's number of followers never decreases, so its
 * increase is the number of first follows. The increase of blocks is unfollows minus returns. The sum of all changes is compared as
 * well, because LINE's mark of a return is not always correct. A difference of up to 10 people, or a tenth, is tolerated. LINE counts whole
 * days, so the day on which the account was added is left out, and a day that was not counted since it ended.
 *
 * $1 int: accounts
 */
const takeDue = statement('take-due-account-figures')`
    with due as materialized (
      select c.channel_oa_id as id, c.counted_at, c.counted_change
        from due_ranges(interval '10 minutes') range
       cross join lateral (
         select channel_oa_id, counted_at, counted_change from account_check
          where count_due_at >= range.since and count_due_at < range.until
          order by count_due_at limit $1 for update skip locked) c
       limit $1
    ), figures as materialized (
      select due.id, last.last_at, silence_chance(due.id, last.last_at), before.deliveries, before.events, before.failed,
             followers.week_ago, gap.day, gap.missing
        from due
        -- LINE's newest delivery, as in select-fleet.
        left join lateral (
          select h.last_at from delivery_hour h
           where h.channel_oa_id = due.id and h.source = 'line' and h.last_at is not null
           order by h.hour desc limit 1) last on true
       cross join lateral (
         select coalesce(sum(h.deliveries), 0) as deliveries, coalesce(sum(h.accepted), 0) as events,
                coalesce(sum(h.failed), 0) as failed
           from delivery_hour h
          where h.channel_oa_id = due.id and h.hour > date_trunc('hour', now()) - interval '24 hours'
            and h.hour < date_trunc('hour', now())) before
        left join lateral (
          select d.following as week_ago from account_day d
           where d.channel_oa_id = due.id and d.following is not null
             and d.day > ${LINE_TODAY} - 30 and d.day <= ${LINE_TODAY} - 7
           order by d.day desc limit 1) followers on true
        left join lateral (
          select g.day, g.missing
            from (select d.day, d.line_followers - p.line_followers as new_followers,
                         greatest(d.line_followers - p.line_followers - d.first_follows,
                                  abs(d.line_followers - p.line_followers - (d.line_blocks - p.line_blocks)
                                      - (d.first_follows + d.returns - d.unfollows))) as missing,
                         d.first_follows + d.returns + d.unfollows as delivered
                    from account_day d
                    join account_day p on p.channel_oa_id = d.channel_oa_id and p.day = d.day - 1
                    join official_account a on a.id = d.channel_oa_id
                   where d.channel_oa_id = due.id and d.day > (now() at time zone 'UTC')::date - 8
                     and d.day > ${lineDayOf('a.created_at')}
                     and d.events_counted_at >= ${lineDayEnd('d.day')}
                     and d.first_follows is not null and d.line_followers is not null and p.line_followers is not null) g
           where g.missing > greatest(10, 0.1 * greatest(g.new_followers, g.delivered))
           order by g.day desc limit 1) gap on true
    ), taken as (
      update account_check c
         set count_due_at = now() + interval '10 minutes', judged_at = now(), silent_since = f.last_at,
             silence_chance = f.silence_chance, deliveries_before = f.deliveries, events_before = f.events,
             failed_before = f.failed, following_week_ago = f.week_ago, missing_day = f.day, missing = f.missing
        from figures f
       where c.channel_oa_id = f.id and c.channel_oa_id = any (array(select id from due))
    )
    select id,
           counted_at is null or is_due(counted_at + interval '1 hour', interval '1 hour')
             or counted_change is distinct from (select max(m.change) from audience_member m
                                                  where m.channel_oa_id = due.id) as is_outdated
      from due`

/** Counts from indexes alone. $1 bigint: account */
const countAudience = statement('count-audience')`
    with counted as (
      select count(*) as members, count(*) filter (where relationship = 'following') as following,
             count(*) filter (where relationship = 'blocked') as blocked
        from audience_member where channel_oa_id = $1
    ), due as (
      select count(*) as profiles
        from (select from audience_member where channel_oa_id = $1 and profile_due_at <= now() limit 10000) m
    ), stored as (
      update account_check
         set members = counted.members, following = counted.following, blocked = counted.blocked,
             profiles_due = due.profiles, counted_at = now(),
             counted_change = (select max(change) from audience_member where channel_oa_id = $1)
        from counted, due
       where channel_oa_id = $1
    )
    insert into account_day as d (channel_oa_id, day, members, following, blocked)
    select a.id, ${LINE_TODAY}, members, following, blocked
      from official_account a cross join counted
     where a.id = $1
        on conflict (channel_oa_id, day) do update set
           members = excluded.members, following = excluded.following, blocked = excluded.blocked`

/** Returns the number of accounts that were due. One that cannot be counted, such as for its size, delays no other. */
export async function refreshDueFigures(database: Database): Promise<number> {
  const due = await database.query<{ id: AccountId; is_outdated: boolean }>(takeDue, [PASS_MAX])
  const outdated = due.filter(({ is_outdated }) => is_outdated).map(({ id }) => id)
  const withSources: AccountId[] = []
  const failures: unknown[] = []
  for (const id of outdated) {
    try {
      await database.query(countAudience, [id])
      if (await countAccountDays(database, id)) withSources.push(id)
    } catch (error) {
      if (error instanceof DatabaseUnavailable) throw error
      failures.push(error)
    }
  }
  if (withSources.length > 0)
    await database.session(async (session) => {
      for (const id of withSources) await countDaysOfSources(session, id)
    })
  if (failures.length > 0) throw failures[0]
  return due.length
}
