/**
 * Finds the account whose events a delivery carries. All official accounts of a module channel (LINE Marketplace) share its
 * webhook URL and its channel secret. Only `destination` identifies the bot. The account is cached, so the flush checks in the
 * transaction that stores the events that none of these accounts has changed.
 */
import { LRUCache } from 'lru-cache'
import type { Account } from '../../accounts/account.ts'
import { findNamedAccounts } from '../../accounts/destinations.ts'
import type { Database } from '../../postgres/database.ts'
import type { Queryable } from '../../postgres/statement.ts'
import type { Found } from '../admit.ts'
import type { Admission } from '../event.ts'

/**
 * Destinations cached per account in a path, so that one sender's invented destinations do not evict those of others. A cache miss
 * costs a lookup, which is less than the cost of storing the delivery.
 */
const DESTINATIONS_MAX = 1_000

export class Recipients {
  readonly #lookups: Queryable
  /** After a stale admission the account is read again, so its cached destinations are no longer used. */
  readonly #cached = new WeakMap<Account, LRUCache<string, Admission>>()

  constructor(database: Pick<Database, 'lookup' | 'secretKeys'>) {
    this.#lookups = {
      secretKeys: database.secretKeys,
      query: (statement, values = []) => database.lookup('account', statement, values),
    }
  }

  /** Admits a delivery to its destination's account, if that has the same organization and secret as the account in the path. */
  async admit({ account, admission }: Found, destination: string | null): Promise<Admission> {
    if (!isForAnotherBot(account, destination)) return admission
    const cached = this.#cached.get(account) ?? new LRUCache<string, Admission>({ max: DESTINATIONS_MAX })
    this.#cached.set(account, cached)
    const seen = cached.get(destination)
    if (seen !== undefined) return seen
    const [named] = await findNamedAccounts(this.#lookups, [{ pathAccountId: account.id, destination }])
    const { accountId, botVersions } = named ?? { accountId: account.id, botVersions: 0n }
    const foreign = { pathAccountId: account.id, botUserId: destination, botVersions }
    const admitted = { ...admission, accountId, foreign }
    cached.set(destination, admitted)
    return admitted
  }
}

/** An account without a bot user id accepts every delivery at its webhook. */
export function isForAnotherBot(account: Account, destination: string | null): destination is string {
  return Boolean(destination) && Boolean(account.botUserId) && destination !== account.botUserId
}
