/**
 * Names, pictures and languages of members, asked of the platform in the background: never before the answer to a
 * webhook. What is to be asked is derived from the members themselves, so several instances share the work and nothing
 * is lost with any of them.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Account, type AccountId, findAccount } from '../accounts/account.ts'
import type { ProfileOutcome } from '../http/metrics.ts'
import type { PlatformFault } from '../line-api/call.ts'
import type { LineApi, Place, Profile } from '../line-api/client.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable, Row, Statement } from '../postgres/statement.ts'
import { inSpan } from '../trace.ts'

/** Between two looks for members whose profile is due, when there were none. */
const IDLE_MS = 1_000
/** Members asked for in one pass, and of one account: many accounts take turns. */
const PASS_MAX = 64
const PASS_MAX_OF_ACCOUNT = 16
/** Calls on their way at once: the platform answers in tens of milliseconds. */
const CONCURRENCY = 8
/** A member who was taken up and not finished, because the instance died, is due again after this. */
const LEASE = '10 minutes'
/** Names and pictures change rarely. A new follow asks at once. */
const FRESH = '30 days'
/** Rest of an account after a fault: doubled each time, at most the longest. */
const REST_MIN_MS = 5_000
const REST_MAX_MS = 15 * 60_000
/** Due members counted for each account; above this the exact number says nothing more. */
const COUNTED_MAX = 10_000
/** Stored events that are looked through for a group in which a person was met. */
const EVENTS_SEARCHED = 20

interface DueMember extends Row {
  channel_oa_id: AccountId
  id: bigint
  user_id: string
}

interface Rest {
  untilMs: number
  lengthMs: number
}

/** Told of what happens, for the log and the metrics. */
export interface ProfileObserver {
  asked: (outcome: ProfileOutcome) => void
  /** a fault makes the account rest */
  rests: (accountId: AccountId, fault: PlatformFault) => void
}

export class ProfileFiller {
  readonly #database: Database
  readonly #lineApi: LineApi
  readonly #observer: ProfileObserver
  readonly #rests = new Map<AccountId, Rest>()
  readonly #stopped = new AbortController()
  #lastAccountId: AccountId = 0n
  #running: Promise<void> = Promise.resolve()

  constructor(database: Database, lineApi: LineApi, observer: ProfileObserver) {
    this.#database = database
    this.#lineApi = lineApi
    this.#observer = observer
  }

  start(): void {
    this.#running = this.#run()
  }

  /** Resolves when nothing is on its way any more. */
  async stop(): Promise<void> {
    this.#stopped.abort()
    await this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopped
    while (!signal.aborted) {
      const asked = await this.pass().catch(() => 0)
      if (asked === 0) await sleep(IDLE_MS, undefined, { signal }).catch(() => undefined)
    }
  }

  /** Asks once for those who are due; tells how many were. A database that is away is asked again in the next pass. */
  async pass(): Promise<number> {
    const now = Date.now()
    const resting = [...this.#rests]
      .filter(([, { untilMs }]) => untilMs > now)
      .map(([accountId]) => accountId)
    const due = await this.#database.query<DueMember>(takeDue, [
      resting,
      this.#lastAccountId,
      PASS_MAX_OF_ACCOUNT,
      PASS_MAX,
    ])
    this.#lastAccountId = due.at(-1)?.channel_oa_id ?? 0n
    const accounts = new Map<AccountId, Promise<Account | null>>()
    const accountOf = (id: AccountId) => {
      const account = accounts.get(id) ?? findAccount(this.#database, id)
      accounts.set(id, account)
      return account
    }
    const queue = due.values()
    const worker = async () => {
      for (const member of queue) {
        // What the database refuses now is due again after the lease.
        await inSpan('ask for a profile', { root: true }, () => this.#ask(member, accountOf)).catch(
          () => undefined,
        )
      }
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, worker))
    return due.length
  }

  async #ask(member: DueMember, accountOf: (id: AccountId) => Promise<Account | null>): Promise<void> {
    if (this.#stopped.signal.aborted || this.#isResting(member.channel_oa_id)) return
    const account = await accountOf(member.channel_oa_id)
    if (account === null) return
    const { signal } = this.#stopped
    let result = await this.#lineApi.profile(account, member.user_id, { type: 'user' }, signal)
    if (!result.ok && isUnknown(result.fault)) {
      const place = await findPlace(this.#database, member)
      if (place !== null) result = await this.#lineApi.profile(account, member.user_id, place, signal)
    }
    if (result.ok) {
      await storeProfile(this.#database, member, result.value)
      this.#rests.delete(member.channel_oa_id)
      this.#observer.asked('found')
    } else if (isUnknown(result.fault)) {
      await this.#database.query(storeUnknown, [member.channel_oa_id, member.id])
      this.#observer.asked('unknown')
    } else if (!signal.aborted) {
      this.#observer.asked('fault')
      this.#rest(member.channel_oa_id, result.fault)
    }
  }

  #isResting(accountId: AccountId): boolean {
    return (this.#rests.get(accountId)?.untilMs ?? 0) > Date.now()
  }

  #rest(accountId: AccountId, fault: PlatformFault): void {
    if (this.#isResting(accountId)) return
    const doubled = 2 * (this.#rests.get(accountId)?.lengthMs ?? REST_MIN_MS / 2)
    const asked = fault.type === 'unavailable' ? fault.retryAfterSeconds * 1000 : REST_MIN_MS
    const lengthMs = Math.max(Math.min(doubled, REST_MAX_MS), asked)
    this.#rests.set(accountId, { untilMs: Date.now() + lengthMs, lengthMs })
    this.#observer.rests(accountId, fault)
  }
}

/** Blocked, gone, never a friend, or an id that is none: 404, and 400 for an id that the platform cannot read. */
function isUnknown(fault: PlatformFault): boolean {
  return fault.type === 'refused' && (fault.status === 404 || fault.status === 400)
}

/** Accounts that can ask the platform at all. */
const hasCredentials = `(channel_access_token <> '' or (channel_id <> '' and channel_secret <> ''))`

// Rows that another instance is taking up, or a flush is changing, are left to them: this never waits for a lock, and
// nobody waits for it longer than the statement takes. Accounts come in turn, from the one after the last pass's.
const takeDue: Statement = {
  name: 'profiles-take-due',
  text: `
    with due as (
      select m.channel_oa_id, m.id
        from (select id from official_account
               where ${hasCredentials}
                 and id <> all ($1::bigint[])
               order by id <= $2, id) a
       cross join lateral (
         select channel_oa_id, id from audience_member
          where channel_oa_id = a.id and profile_due_at <= now()
          order by profile_due_at limit $3
            for update skip locked) m
       limit $4
    )
    update audience_member m set profile_due_at = now() + interval '${LEASE}'
      from due where m.channel_oa_id = due.channel_oa_id and m.id = due.id
    returning m.channel_oa_id, m.id, m.user_id`,
}

const countDue: Statement = {
  name: 'profiles-count-due',
  text: `
    select count(*)::int as count
      from (select id from official_account where ${hasCredentials}) a
     cross join lateral (
       select from audience_member
        where channel_oa_id = a.id and profile_due_at <= now() limit ${COUNTED_MAX}) m`,
}

/** Members whose profile is due, at most COUNTED_MAX of each account. */
export async function countDueProfiles(database: Queryable): Promise<number> {
  const [row] = await database.query<{ count: number }>(countDue)
  return row?.count ?? 0
}

/** While the platform is asked, the lease stands there, in the future; unless a new follow asks again. */
const unlessDueAgain = (next: string) =>
  `case when profile_due_at <= clock_timestamp() then profile_due_at else ${next} end`
const dueOnceFound = unlessDueAgain(`now() + interval '${FRESH}' + random() * interval '1 day'`)
const dueOnceUnknown = unlessDueAgain(
  `case when relationship <> 'blocked' and last_seen_at > coalesce(profile_checked_at, '-infinity')
        then now() + interval '${FRESH}' end`,
)

// A profile without a language is one of a person who does not tell it, or of a group: what was known stays.
const storeFound: Statement = {
  name: 'profiles-store',
  text: `
    update audience_member
       set display_name = $3, picture_url = $4, language = coalesce($5, language),
           profile_checked_at = now(),
           profile_due_at = ${dueOnceFound},
           updated_at = case when (display_name, picture_url, language)
                                  is distinct from ($3::text, $4::text, coalesce($5::text, language))
                        then greatest(clock_timestamp(), updated_at) else updated_at end
     where channel_oa_id = $1 and id = $2`,
}

// Who has no profile is asked for once more, then again only if they were seen since the last time; a new follow asks at once.
const storeUnknown: Statement = {
  name: 'profiles-store-unknown',
  text: `
    update audience_member
       set profile_due_at = ${dueOnceUnknown},
           profile_checked_at = now()
     where channel_oa_id = $1 and id = $2`,
}

function storeProfile(database: Queryable, member: DueMember, profile: Profile): Promise<unknown> {
  const { displayName, pictureUrl, language } = profile
  return database.query(storeFound, [member.channel_oa_id, member.id, displayName, pictureUrl, language])
}

const findMeetings: Statement = {
  name: 'profiles-meetings',
  text: `
    select payload from event
     where channel_oa_id = $1 and source = 'line' and (user_id = $2 or other_user_ids @> array[$2])
       and (payload like '%"groupId":%' or payload like '%"roomId":%')
     order by id desc limit ${EVENTS_SEARCHED}`,
}

/** The group or room in which the person was met last: there they have a profile without being a friend. */
async function findPlace(database: Queryable, member: DueMember): Promise<Place | null> {
  const events = await database.query<{ payload: string }>(findMeetings, [
    member.channel_oa_id,
    member.user_id,
  ])
  for (const { payload } of events) {
    const { source } = JSON.parse(payload) as {
      source?: { type?: unknown; groupId?: unknown; roomId?: unknown }
    }
    if (source?.type === 'group' && typeof source.groupId === 'string')
      return { type: 'group', id: source.groupId }
    if (source?.type === 'room' && typeof source.roomId === 'string')
      return { type: 'room', id: source.roomId }
  }
  return null
}
