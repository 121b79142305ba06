/**
 * Finds the account that a delivery is for. Reading it from the database for each delivery would cost as much as storing the
 * delivery, so accounts are cached, but a cached account never decides alone:
 *
 * - the flush compares the account's credentials_version in the transaction that stores the events;
 * - a delivery that is refused by a cached account is checked again with the stored one.
 *
 * So a changed secret, hash or bot user id, or a removed account, counts on the next delivery.
 */
import { LRUCache } from 'lru-cache'
import type { Account } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { Source } from './event.ts'
import type { Admission } from './flush-batch.ts'

/** Accounts that one process caches for each source. */
const CACHE_MAX_ACCOUNTS = 10_000
/** Values that admit nothing, such as the last foreign destination, take effect after this. */
const CACHE_TTL_MS = 30_000
/** Attempts to store a delivery whose account changes again and again meanwhile. */
const ATTEMPTS_MAX = 5

/** An account, as it was when it was read. */
export interface Found {
  account: Account
  /** What the flush compares. One object per read, which flushes group deliveries by. */
  admission: Admission
  /** Whether the account's secret proves the sender. */
  isAccepted: boolean
  /** The account may have changed meanwhile. */
  isCached: boolean
}

/** The accounts of one source, under the name by which its deliveries find them: an id, a hash or a key. */
export class AdmittingAccounts<Name extends bigint | string> {
  readonly #cache = new LRUCache<bigint | string, Found>({ max: CACHE_MAX_ACCOUNTS, ttl: CACHE_TTL_MS })
  readonly #source: Source
  readonly #read: (name: Name) => Promise<Account | null>
  readonly #keyOf: (name: Name) => bigint | string

  /** @param keyOf the name in the cache; a hash of it if the name is a secret */
  constructor(
    source: Source,
    read: (name: Name) => Promise<Account | null>,
    keyOf: (name: Name) => bigint | string = (name) => name,
  ) {
    this.#source = source
    this.#read = read
    this.#keyOf = keyOf
  }

  /**
   * The account that a delivery is for, or null. A cached account that does not accept the delivery is read again.
   * @param isAgain the account changed under the delivery, so the cached one is not used
   * @param accepts whether the account's secret proves the sender
   */
  async find(
    name: Name,
    isAgain: boolean,
    accepts: (account: Account) => boolean = () => true,
  ): Promise<Found | null> {
    const key = this.#keyOf(name)
    const cached = isAgain ? undefined : this.#cache.get(key)
    if (cached !== undefined && accepts(cached.account)) return cached
    const account = await this.#read(name)
    if (account === null) {
      this.#cache.delete(key)
      return null
    }
    const { id: accountId, credentialsVersion } = account
    const admission = { accountId, credentialsVersion, source: this.#source }
    this.#cache.set(key, { account, admission, isAccepted: true, isCached: true })
    return { account, admission, isAccepted: accepts(account), isCached: false }
  }
}

/**
 * Stores a delivery again with the account as it is now, if the account changed under it. Throws `unavailable` if the account
 * never stops changing.
 * @param attempt `stale`: the account has changed since it was read
 */
export async function repeatWhileStale<T>(attempt: (isAgain: boolean) => Promise<T | 'stale'>): Promise<T> {
  for (let attempts = 1; attempts <= ATTEMPTS_MAX; attempts += 1) {
    const result = await attempt(attempts > 1)
    if (result !== 'stale') return result
  }
  throw new AppError('unavailable', { retryAfterSeconds: 1 })
}
