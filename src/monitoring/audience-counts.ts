/** Counts the members of each account by relationship. A count of millions is too slow for a page that shows all accounts. */
import type { AccountId } from '../accounts/account.ts'
import { LINE_TODAY } from '../line-day.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'

/** Accounts that one pass looks at. Most have not changed, and cost two index lookups each. */
const PASS_MAX = 100

/**
 * Takes accounts for ten minutes, so that no other instance looks at them. Those whose members have changed are counted, and all
 * once an hour.
 *
 * $1 int: accounts
 */
const takeDue: Statement = {
  name: 'take-due-audience-counts',
  text: `
    with due as materialized (
      select channel_oa_id, counted_at, counted_change from account_check
       where count_due_at <= now() order by count_due_at limit $1 for update skip locked
    ), taken as (
      update account_check set count_due_at = now() + interval '10 minutes'
       where channel_oa_id = any (array(select channel_oa_id from due))
    )
    select channel_oa_id as id,
           counted_at is null or counted_at < now() - interval '1 hour'
             or counted_change is distinct from (select max(m.change) from audience_member m
                                                  where m.channel_oa_id = due.channel_oa_id) as is_outdated
      from due`,
}

/** $1 bigint: account. Counts from indexes alone, and at most 10,000 due profiles. */
const countAudience: Statement = {
  name: 'count-audience',
  text: `
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
           members = excluded.members, following = excluded.following, blocked = excluded.blocked`,
}

/** Counts the audiences that are due. Returns how many accounts it looked at. */
export async function countDueAudiences(database: Queryable): Promise<number> {
  const due = await database.query<{ id: AccountId; is_outdated: boolean }>(takeDue, [PASS_MAX])
  for (const { id, is_outdated } of due) if (is_outdated) await database.query(countAudience, [id])
  return due.length
}
