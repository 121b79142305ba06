/**
 * Finds the account that a delivery is for. Reading it from the database for each delivery would cost as much as storing the
 * delivery, so accounts are cached, but a cached account never decides alone:
 *
 * - the flush compares the account's credentials_version in the transaction that stores the events;
 * - a delivery that is refused by a cached account is judged again by the stored one.
 *
 * So a changed secret, hash or bot user id, or a removed account, counts on the next delivery.
 */
import { LRUCache } from 'lru-cache'
import type { Account } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { Source } from './event.ts'
import type { Admission } from './flush.ts'

/** Accounts that one process caches for each source. */
const CACHE_MAX_ACCOUNTS = 10_000
/** Values that admit nothing, such as the last foreign destination, take effect after this. */
const CACHE_TTL_MS = 30_000
/** Reads of an account that changes again and again while a delivery is being stored. */
const READS_MAX = 5

/** An account, as it was when it was read. */
export interface Candidate {
  account: Account
  /** What the flush compares. One object per read, which flushes group deliveries by. */
  admission: Admission
  /** The account may have changed meanwhile, so a refusal is not final. */
  isCached: boolean
}

/** The accounts of one source, under the name by which its deliveries find them: an id, a hash or a key. */
export class AdmittingAccounts<Name extends bigint | string> {
  readonly #cache = new LRUCache<bigint | string, Candidate>({ max: CACHE_MAX_ACCOUNTS, ttl: CACHE_TTL_MS })
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
   * Yields the account to judge a delivery by: first the cached one, then the stored one, and again while it changes under
   * the delivery. Nothing more is yielded once there is no such account. Take the next candidate if the delivery is refused by
   * a cached account, or if its events turn out to be stale. Throws `unavailable` if the account never stops changing.
   */
  async *candidates(name: Name): AsyncGenerator<Candidate> {
    const key = this.#keyOf(name)
    const cached = this.#cache.get(key)
    if (cached !== undefined) yield cached
    for (let reads = 1; reads <= READS_MAX; reads += 1) {
      const account = await this.#read(name)
      if (account === null) {
        this.#cache.delete(key)
        return
      }
      const { id: accountId, credentialsVersion } = account
      const admission = { accountId, credentialsVersion, source: this.#source }
      this.#cache.set(key, { account, admission, isCached: true })
      yield { account, admission, isCached: false }
    }
    throw new AppError('unavailable', { retryAfterSeconds: 1 })
  }
}
