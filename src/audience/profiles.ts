/**
 * Requests names, pictures and languages of members from the platform in the background. The time at which a profile is due is
 * stored with the member, so instances share the work, and none is lost with an instance.
 */
import { type Account, type AccountId, findAccount } from '../accounts/account.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { every, type Repetition } from '../every.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { PlatformFault } from '../line-api/call.ts'
import { CallBudget } from '../line-api/call-budget.ts'
import type { LineApi } from '../line-api/client.ts'
import { profileRequested, profilesBackedOff } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import { type DueMember, findGroup, storeProfile, storeUnknown, takeDueMembers } from './due-profiles.ts'

/** Pause between passes while no profile is due. */
const IDLE_MS = 1_000
/** Requests in flight. The platform responds in tens of milliseconds. */
const CONCURRENCY = 8
/** First pause of an account after a fault. Each further fault doubles it. */
const BACKOFF_MIN_MS = 5_000
const BACKOFF_MAX_MS = 15 * 60_000

interface Backoff {
  untilMs: number
  lengthMs: number
}

export class ProfileFiller {
  readonly #database: Database
  readonly #lineApi: LineApi
  readonly #backoffs = new Map<AccountId, Backoff>()
  #lastAccountId: AccountId = INT64_MIN
  /** Members found in the current and in the previous round through all accounts. */
  #foundInRound = 0
  #foundInLastRound = 0

  constructor(database: Database, lineApi: LineApi) {
    this.#database = database
    this.#lineApi = lineApi
  }

  start(): Repetition {
    return every(IDLE_MS, async (signal) => {
      const count = await this.pass(signal)
      return count + this.#foundInRound + this.#foundInLastRound === 0 ? IDLE_MS : 0
    })
  }

  /** Requests the due profiles of the next accounts, and returns their number. Throws DatabaseUnavailable. */
  async pass(signal = AbortSignal.any([])): Promise<number> {
    const now = Date.now()
    const pausing = new Set([...this.#backoffs].filter(([, { untilMs }]) => untilMs > now).map(([id]) => id))
    const { members, lastAccountId } = await takeDueMembers(this.#database, pausing, this.#lastAccountId)
    this.#countRound(members.length, lastAccountId)
    const accounts = new Map<AccountId, Promise<Account | null>>()
    const accountOf = (id: AccountId) => {
      const account = accounts.get(id) ?? findAccount(this.#database, id)
      accounts.set(id, account)
      return account
    }
    const queue = members.values()
    const work = async () => {
      for (const member of queue) {
        // If the result cannot be stored, the profile is due again after its lease.
        await this.#request(member, accountOf, signal).catch(() => undefined)
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

  async #request(
    member: DueMember,
    accountOf: (id: AccountId) => Promise<Account | null>,
    signal: AbortSignal,
  ): Promise<void> {
    if (signal.aborted || this.#isBackingOff(member.channel_oa_id)) return
    const account = await accountOf(member.channel_oa_id).catch((error) => {
      // Otherwise each pass would lease the next members of the account.
      if (error instanceof UnreadableSecret) this.#backOff(member.channel_oa_id, { type: 'no_credentials' })
      throw error
    })
    if (account === null) return
    const budget = new CallBudget(signal)
    let result = await this.#lineApi.profile(account, member.user_id, null, budget)
    if (!result.ok && isUnknown(result.fault)) {
      // A person who is not a friend has a profile in the groups that they share with the account.
      const groupId = await findGroup(this.#database, member)
      if (groupId !== null) result = await this.#lineApi.profile(account, member.user_id, groupId, budget)
    }
    if (result.ok) {
      await storeProfile(this.#database, member, result.value)
      this.#backoffs.delete(member.channel_oa_id)
      profileRequested.publish({ outcome: 'found' })
    } else if (isUnknown(result.fault)) {
      await storeUnknown(this.#database, member)
      profileRequested.publish({ outcome: 'unknown' })
    } else if (!signal.aborted) {
      profileRequested.publish({ outcome: 'fault' })
      this.#backOff(member.channel_oa_id, result.fault)
    }
  }

  #isBackingOff(accountId: AccountId): boolean {
    return (this.#backoffs.get(accountId)?.untilMs ?? 0) > Date.now()
  }

  #backOff(accountId: AccountId, fault: PlatformFault): void {
    if (this.#isBackingOff(accountId)) return
    const doubled = 2 * (this.#backoffs.get(accountId)?.lengthMs ?? BACKOFF_MIN_MS / 2)
    const requested = fault.type === 'unavailable' ? fault.retryAfterSeconds * 1000 : BACKOFF_MIN_MS
    const lengthMs = Math.max(Math.min(doubled, BACKOFF_MAX_MS), requested)
    this.#backoffs.set(accountId, { untilMs: Date.now() + lengthMs, lengthMs })
    const status = 'status' in fault ? fault.status : undefined
    profilesBackedOff.publish({ accountId, fault: fault.type, status })
  }
}

/** The person blocked the account, was deleted or was never a friend (404), or the id is not valid (400). */
function isUnknown(fault: PlatformFault): boolean {
  return fault.type === 'refused' && (fault.status === 404 || fault.status === 400)
}
