/**
 * Finds the account that a delivery is for. Reading it from the database would cost as much as storing the delivery, so accounts
 * are cached. A changed secret, hash or bot user id, or a removed account, still takes effect on the next delivery:
 *
 * - the flush compares the account's credentials_version in the transaction that stores the events;
 * - a delivery that a cached account does not accept is checked again with the stored account.
 */
import { LRUCache } from 'lru-cache'
import type { Account } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { Admission, Source } from './event.ts'

/** Limit per source and process. */
const CACHE_MAX_ACCOUNTS = 10_000
/** Fields that admit no delivery, such as the last foreign destination, may be this old. */
const CACHE_TTL_MS = 30_000
/** Attempts to store a delivery whose account keeps changing. */
const ATTEMPTS_MAX = 5

export interface Found {
  account: Account
  /** One object per read, because flushes group deliveries by it. */
  admission: Admission
  /** The account's secret proves the sender. */
  isAccepted: boolean
  isCached: boolean
}

/**
 * A name is an id, a hash or a key.
 * @param isAgain the account changed while the delivery was stored, so the cache is not used
 * @param accepts whether the account's secret proves the sender
 */
export type FindAdmitting<Name> = (
  name: Name,
  isAgain: boolean,
  accepts?: (account: Account) => boolean,
) => Promise<Found | null>

/** @param keyOf the cache key of a name; a hash if the name is a secret */
export function cacheAccounts<Name extends bigint | string>(
  source: Source,
  read: (name: Name) => Promise<Account | null>,
  keyOf: (name: Name) => bigint | string = (name) => name,
): FindAdmitting<Name> {
  const cache = new LRUCache<bigint | string, Found>({ max: CACHE_MAX_ACCOUNTS, ttl: CACHE_TTL_MS })
  return async (name, isAgain, accepts = () => true) => {
    const key = keyOf(name)
    const cached = isAgain ? undefined : cache.get(key)
    if (cached !== undefined && accepts(cached.account)) return cached
    const account = await read(name)
    if (account === null) {
      cache.delete(key)
      return null
    }
    const { id: accountId, credentialsVersion, conditions } = account
    const admission = { accountId, credentialsVersion, source, conditions }
    const isAccepted = accepts(account)
    // Otherwise each forged request would replace the objects with which sources note what they have written.
    if (isAccepted || cached?.account.credentialsVersion !== account.credentialsVersion)
      cache.set(key, { account, admission, isAccepted: true, isCached: true })
    return { account, admission, isAccepted, isCached: false }
  }
}

/** @param attempt returns `stale` if the account has changed since it was read */
export async function repeatWhileStale<Given extends unknown[], T>(
  attempt: (isAgain: boolean, ...given: Given) => Promise<T | 'stale'>,
  ...given: Given
): Promise<T> {
  for (let attempts = 1; attempts <= ATTEMPTS_MAX; attempts += 1) {
    const result = await attempt(attempts > 1, ...given)
    if (result !== 'stale') return result
  }
  throw new AppError('unavailable', { retryAfterSeconds: 1 })
}
