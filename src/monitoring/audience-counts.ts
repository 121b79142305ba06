/** Counts the members of each account by relationship. A count of millions is too slow for a page that shows all accounts. */
import type { AccountId } from '../accounts/account.ts'
import { LINE_TODAY } from '../line-day.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'

/**
 * The account that was counted longest ago, of those whose members changed in the last ten minutes, or that were not counted for
 * an hour. Taken for ten minutes, so that no other instance counts it.
 */
const takeUncounted: Statement = {
  name: 'take-uncounted-audience',
  text: `
    update account_check
       set counted_at = now()
     where channel_oa_id = (
       select c.channel_oa_id
         from account_check c
        where c.counted_at is null or c.counted_at < now() - interval '1 hour'
           or c.counted_at < now() - interval '10 minutes'
              and c.counted_change is distinct from (select max(m.change) from audience_member m
                                                      where m.channel_oa_id = c.channel_oa_id)
        order by c.counted_at nulls first limit 1
          for update skip locked)
    returning channel_oa_id as id`,
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

/** Counts the audience of one account. Returns 0 if every count is recent enough. */
export async function countNextAudience(database: Queryable): Promise<number> {
  const [taken] = await database.query<{ id: AccountId }>(takeUncounted)
  if (taken === undefined) return 0
  await database.query(countAudience, [taken.id])
  return 1
}
