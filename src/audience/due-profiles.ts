/** The statements of profiles.ts: they take due profiles and store the results. */
import type { AccountId } from '../accounts/account.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { Profile } from '../line-api/line-responses.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'

const PASS_MAX = 64
/** Members of one account per pass, so that accounts take turns. */
const PASS_MAX_OF_ACCOUNT = 16
/** Accounts per pass, with one index lookup each: about 3 ms. */
const PASS_MAX_ACCOUNTS = 1_000
/** Members counted per account. */
const COUNTED_MAX = 10_000

export interface DueMember extends Row {
  channel_oa_id: AccountId
  id: bigint
  user_id: string
}

/** $1 bigint: the account before the first one; $2 int: accounts. */
const selectNextAccounts = statement('select-next-accounts')`
    select id, can_call_platform(account)
      from official_account account where id > $1 order by id limit $2`

/**
 * $1 bigint[]: accounts, in the order of their turns; $2 int: members per account; $3 int: members.
 *
 * Leases members for 10 minutes. If the instance dies, their profiles are due again. Rows that another transaction has locked are
 * skipped.
 */
const takeDue = statement('take-due-profiles')`
    with due as (
      select m.channel_oa_id, m.id
        from unnest($1::bigint[]) as account_id
       cross join due_ranges(interval '31 days') range
       cross join lateral (
         select channel_oa_id, id from audience_member
          where channel_oa_id = account_id and profile_due_at >= range.since and profile_due_at < range.until
          order by profile_due_at limit $2
            for update skip locked) m
       limit $3
    )
    update audience_member m set profile_due_at = now() + interval '10 minutes'
      from due where m.channel_oa_id = due.channel_oa_id and m.id = due.id
    returning m.channel_oa_id, m.id, m.user_id`

export interface DueMembers {
  members: DueMember[]
  /** The account after which the next pass begins. INT64_MIN: all accounts have had their turn. */
  lastAccountId: AccountId
}

/** Takes members of up to PASS_MAX_ACCOUNTS accounts after `after`, so the cost does not depend on the number of accounts. */
export async function takeDueMembers(
  database: Queryable,
  except: ReadonlySet<AccountId>,
  after: AccountId,
): Promise<DueMembers> {
  const values = [after, PASS_MAX_ACCOUNTS]
  const accounts = await database.query<{ id: AccountId; can_call_platform: boolean }>(
    selectNextAccounts,
    values,
  )
  const ids = accounts
    .filter(({ id, can_call_platform }) => can_call_platform && !except.has(id))
    .map(({ id }) => id)
  const members = await database.query<DueMember>(takeDue, [ids, PASS_MAX_OF_ACCOUNT, PASS_MAX])
  if (members.length === PASS_MAX) {
    const taken = members.map(({ channel_oa_id }) => channel_oa_id)
    return { members, lastAccountId: taken.reduce((last, id) => (id > last ? id : last)) }
  }
  return {
    members,
    lastAccountId: accounts.length === PASS_MAX_ACCOUNTS ? (accounts.at(-1)?.id ?? INT64_MIN) : INT64_MIN,
  }
}

/** $1 int: members counted per account. */
const countDue = statement('count-due-profiles')`
    select count(*)::int as count
      from (select id from official_account account where can_call_platform(account)) a
     cross join lateral (
       select from audience_member
        where channel_oa_id = a.id and profile_due_at <= now() limit $1) m`

/** Counts members whose profile is due, at most COUNTED_MAX of each account. */
export async function countDueProfiles(database: Queryable): Promise<number> {
  const [row] = await database.query<{ count: number }>(countDue, [COUNTED_MAX])
  return row?.count ?? 0
}

const IS_PROFILE_CHANGED = `(display_name, picture_url, language)
                                  is distinct from ($3::text, $4::text, coalesce($5::text, language))`

/**
 * $1 bigint: account; $2 bigint: member; $3 text: name; $4 text: picture; $5 text: language, null keeps the stored one, because
 * profiles in groups have none. The next request is due in 30 to 31 days, unless a new follow made it due during the lease.
 */
const storeFound = statement('store-profile')`
    update audience_member
       set display_name = $3, picture_url = $4, language = coalesce($5, language),
           profile_checked_at = now(),
           profile_due_at = case when profile_due_at <= clock_timestamp() then profile_due_at
                            else now() + interval '30 days' + random() * interval '1 day' end,
           updated_at = case when ${IS_PROFILE_CHANGED} then greatest(clock_timestamp(), updated_at) else updated_at end,
           change = case when ${IS_PROFILE_CHANGED} then next_change() else change end
     where channel_oa_id = $1 and id = $2`

export async function storeProfile(database: Queryable, member: DueMember, profile: Profile): Promise<void> {
  const { displayName, pictureUrl, language } = profile
  await database.query(storeFound, [member.channel_oa_id, member.id, displayName, pictureUrl, language])
}

/**
 * $1 bigint: account; $2 bigint: member. A missing profile is requested again after 30 days if the person was seen since the last
 * request. A new follow makes it due immediately.
 */
const storeNotFound = statement('store-unknown-profile')`
    update audience_member
       set profile_due_at = case when profile_due_at <= clock_timestamp() then profile_due_at
                                 when relationship <> 'blocked'
                                      and last_seen_at > coalesce(profile_checked_at, '-infinity')
                                 then now() + interval '30 days' end,
           profile_checked_at = now()
     where channel_oa_id = $1 and id = $2`

export async function storeUnknown(database: Queryable, member: DueMember): Promise<void> {
  await database.query(storeNotFound, [member.channel_oa_id, member.id])
}

/** $1 bigint: account; $2 text: user id. */
const selectGroup = statement('select-group-of-person')`
    select group_id from event
     where channel_oa_id = $1 and (user_id = $2 or other_user_ids @> array[$2]) and group_id is not null
     order by id desc limit 1`

/** Returns the group or room of the person's latest event in one, or null. */
export async function findGroup(database: Queryable, member: DueMember): Promise<string | null> {
  const values = [member.channel_oa_id, member.user_id]
  const [row] = await database.query<{ group_id: string }>(selectGroup, values)
  return row?.group_id ?? null
}
