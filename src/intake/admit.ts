/**
 * Which account a delivery is for. Reading it from the database for each delivery would cost as much as keeping
 * the delivery, so accounts are remembered; and nothing is decided on a memory alone:
 *
 * - a delivery that is accepted on it is compared with the account again in the transaction that keeps it;
 * - a delivery that is refused on it is judged once more on the account as it is now.
 *
 * So a changed secret, a removed account, a new hash count on the very next delivery.
 */
import { LRUCache } from 'lru-cache'
import type { Account, AccountId } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { SpareSigned } from '../http/rate-limit.ts'
import type { Database } from '../postgres/database.ts'
import type { Source } from './event.ts'
import type { Admission } from './flush.ts'
import { type Intake, type Receipt, StaleAdmission } from './receive.ts'

/** Accounts that one process remembers; beyond it, those remembered longest are forgotten. */
const ACCOUNTS_MAX = 10_000
/** What decides nothing, such as the bot user id that destinations are compared with, counts after this. */
const REMEMBERED_MS = 30_000
/** An account that changes again and again while a delivery is being kept. */
const ATTEMPTS_MAX = 5

/** What the route of a source that signs its deliveries needs. */
export interface SignedSource {
  database: Database | null
  intake: Intake | null
  /** the sender proved who it is: its request need not count against its address */
  onSigned: SpareSigned
  /** its signature was wrong, on the account as it is now */
  onRefused: (accountId: AccountId, source: Source) => void
  now: () => number
}

/** An account, and what its deliveries are compared with when they are kept. */
interface Admitting {
  account: Account
  admission: Admission
}

/** One for each way to name an account: by id, by hash, by key. */
export class RememberedAccounts<Name extends string | bigint> {
  readonly #accounts = new LRUCache<Name, Admitting & { untilMs: number }>({ max: ACCOUNTS_MAX })
  readonly #load: (name: Name) => Promise<Account | null>
  readonly #admissionOf: (account: Account) => Admission

  constructor(load: (name: Name) => Promise<Account | null>, admissionOf: (account: Account) => Admission) {
    this.#load = load
    this.#admissionOf = admissionOf
  }

  /**
   * Runs `attempt` with the account of that name, again with a fresh one where the first try was decided on a memory.
   * `isFresh` tells an attempt that keeps nothing that it may answer at once. Throws what the last attempt threw,
   * and `unknown` where there is no such account.
   */
  async admit(
    name: Name,
    unknown: () => AppError,
    attempt: (admitting: Admitting, isFresh: boolean) => Promise<Receipt>,
  ): Promise<Receipt> {
    const remembered = this.#accounts.get(name)
    if (remembered !== undefined && Date.now() < remembered.untilMs) {
      try {
        return await attempt(remembered, false)
      } catch (error) {
        if (!isDecision(error)) throw error
      }
    }
    for (let attempts = 1; attempts <= ATTEMPTS_MAX; attempts += 1) {
      const account = await this.#load(name)
      this.#accounts.delete(name)
      if (account === null) throw unknown()
      const admitting = { account, admission: this.#admissionOf(account) }
      this.#accounts.set(name, { ...admitting, untilMs: Date.now() + REMEMBERED_MS })
      try {
        return await attempt(admitting, true)
      } catch (error) {
        if (!(error instanceof StaleAdmission)) throw error
      }
    }
    throw new AppError('unavailable', { retryAfterSeconds: 1 })
  }
}

/**
 * What keeps nothing is compared with nothing in a transaction, so it may be answered on the account as it is now alone.
 * Throws StaleAdmission, upon which `admit` reads the account anew.
 */
export function requireFreshIfEmpty(events: unknown[], isFresh: boolean): void {
  if (events.length === 0 && !isFresh) throw new StaleAdmission()
}

/** An error that depended on the account, unlike a database that is away. */
function isDecision(error: unknown): boolean {
  return error instanceof StaleAdmission || (error instanceof AppError && error.code !== 'unavailable')
}
