/** Requests names, pictures and languages of members from LINE. The time at which a profile is due is stored, so instances share the work. */
import { findAccount } from '../accounts/account.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { every, type Repetition } from '../every.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId } from '../ids.ts'
import type { PlatformFault } from '../line-api/call.ts'
import type { LineApi } from '../line-api/client.ts'
import { profileRequested, profilesBackedOff } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'

const IDLE_MS = 1_000
/** Requests in flight. The platform responds in tens of milliseconds. */
const CONCURRENCY = 8
/** Least pause of an account after a fault. It ends with at most CONCURRENCY refused requests. */
const PAUSE_MIN_SECONDS = 60

export class ProfileFiller {
  readonly #database: Database
  readonly #lineApi: LineApi
  readonly #pausedUntilMs = new Map<AccountId, number>()
  #lastAccountId: AccountId = INT64_MIN
  /** Members found in the current and in the previous round through all accounts. */
  #foundInRound = 0
  #foundInLastRound = 0

  constructor(database: Database, lineApi: LineApi) {
    this.#database = database
    this.#lineApi = lineApi
  }

  start(): Repetition {
    return every('profiles', IDLE_MS, async (signal) => {
      const count = await this.pass(signal)
      return count + this.#foundInRound + this.#foundInLastRound === 0 ? IDLE_MS : 0
    })
  }

  /** Requests the due profiles of the next accounts, and returns their number. Throws DatabaseUnavailable. */
  async pass(signal = AbortSignal.any([])): Promise<number> {
    const paused = new Set([...this.#pausedUntilMs.keys()].filter((id) => this.#isPaused(id)))
    const { members, lastAccountId } = await takeDueMembers(this.#database, paused, this.#lastAccountId)
    this.#countRound(members.length, lastAccountId)
    const queue = members.values()
    const work = async () => {
      for (const member of queue) {
        // If the result cannot be stored, the profile is due again after its lease.
        await this.#request(member, signal).catch(() => undefined)
      }
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, work))
    return members.length
  }

  #countRound(found: number, lastAccountId: AccountId): void {
    this.#lastAccountId = lastAccountId
    this.#foundInRound += found
    if (lastAccountId !== INT64_MIN) return
    this.#foundInLastRound = this.#foundInRound
    this.#foundInRound = 0
  }

  async #request(member: DueMember, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#isPaused(member.channel_oa_id)) return
    const account = await findAccount(this.#database.accounts, member.channel_oa_id).catch((error) => {
      // Otherwise each pass would lease the next members of the account.
      if (error instanceof UnreadableSecret) this.#pause(member.channel_oa_id, { type: 'no_credentials' })
      throw error
    })
    if (account === null) return
    let result = await this.#lineApi.profile(account, member.user_id, null, signal)
    if (!result.ok && isUnknown(result.fault)) {
      // A person who is not a friend has a profile in the groups that they share with the account.
      const values = [member.channel_oa_id, member.user_id]
      const [group] = await this.#database.query<{ group_id: string }>(selectGroup, values)
      const groupId = group?.group_id
      if (groupId !== undefined)
        result = await this.#lineApi.profile(account, member.user_id, groupId, signal)
    }
    const key = [member.channel_oa_id, member.id]
    if (result.ok) {
      const { displayName, pictureUrl, language } = result.value
      await this.#database.query(storeFound, [...key, displayName, pictureUrl, language])
      profileRequested.publish({ outcome: 'found' })
    } else if (isUnknown(result.fault)) {
      await this.#database.query(storeNotFound, key)
      profileRequested.publish({ outcome: 'unknown' })
    } else if (!signal.aborted) {
      profileRequested.publish({ outcome: 'fault' })
      this.#pause(member.channel_oa_id, result.fault)
    }
  }

  #isPaused(accountId: AccountId): boolean {
    return (this.#pausedUntilMs.get(accountId) ?? 0) > Date.now()
  }

  #pause(accountId: AccountId, fault: PlatformFault): void {
    if (this.#isPaused(accountId)) return
    const requested = fault.type === 'unavailable' ? fault.retryAfterSeconds : 0
    this.#pausedUntilMs.set(accountId, Date.now() + Math.max(requested, PAUSE_MIN_SECONDS) * 1000)
    const status = 'status' in fault ? fault.status : undefined
    profilesBackedOff.publish({ accountId, fault: fault.type, status })
  }
}

/** 404: the person blocked the account, was deleted or was never a friend. 400: the id is not valid. */
function isUnknown(fault: PlatformFault): boolean {
  return fault.type === 'refused' && (fault.status === 404 || fault.status === 400)
}

const PASS_MAX = 64
/** Members of one account per pass, so that accounts take turns. */
const PASS_MAX_OF_ACCOUNT = 16
/** Per pass, with one index lookup each: about 3 ms. So the cost of a pass does not depend on the number of accounts. */
const PASS_MAX_ACCOUNTS = 1_000
const COUNTED_MAX = 10_000

interface DueMember extends Row {
  channel_oa_id: AccountId
  id: bigint
  user_id: string
}

const selectNextAccounts = statement('select-next-accounts')`
    select id, can_call_platform(account)
      from official_account account where id > $1 order by id limit $2`

/** $1 bigint[]: accounts, in the order of their turns; $2 int: members per account; $3 int: members. Leases them for 10 minutes. */
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

/** @returns `lastAccountId`: the next pass begins after it; INT64_MIN: all accounts have had their turn */
export async function takeDueMembers(
  database: Queryable,
  except: ReadonlySet<AccountId>,
  after: AccountId,
): Promise<{ members: DueMember[]; lastAccountId: AccountId }> {
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
  return { members, lastAccountId: accounts[PASS_MAX_ACCOUNTS - 1]?.id ?? INT64_MIN }
}

const countDue = statement('count-due-profiles')`
    select count(*)::int as count
      from (select from (select id from official_account account where can_call_platform(account)) a
             cross join lateral (
               select from audience_member where channel_oa_id = a.id and profile_due_at <= now() limit $1) m
             limit 10 * $1) due`

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

/** $1 bigint: account; $2 bigint: member. It is requested again after 30 days if the person was seen since, or on a new follow. */
const storeNotFound = statement('store-unknown-profile')`
    update audience_member
       set profile_due_at = case when profile_due_at <= clock_timestamp() then profile_due_at
                                 when relationship <> 'blocked'
                                      and last_seen_at > coalesce(profile_checked_at, '-infinity')
                                 then now() + interval '30 days' end,
           profile_checked_at = now()
     where channel_oa_id = $1 and id = $2`

/** $1 bigint: account; $2 text: user id. The group or room of the person's latest event in one. */
const selectGroup = statement('select-group-of-person')`
    select group_id from event
     where channel_oa_id = $1 and (user_id = $2 or other_user_ids @> array[$2]) and group_id is not null
     order by id desc limit 1`
