/**
 * Finds the account whose events a delivery carries. All official accounts of a module channel (LINE Marketplace) share its
 * webhook URL and its channel secret. Only `destination` identifies the bot. The account is cached, so the flush finds it again in
 * the transaction that stores the events.
 */
import { LRUCache } from 'lru-cache'
import type { Account, AccountId } from '../../accounts/account.ts'
import type { Database } from '../../postgres/database.ts'
import { statement } from '../../postgres/statement.ts'
import type { Found } from '../admit.ts'
import type { Admission } from '../event.ts'

/**
 * Destinations cached per account in a path, so that one sender's invented destinations do not evict those of others. A cache miss
 * costs a lookup, which is less than the cost of storing the delivery.
 */
const DESTINATIONS_MAX = 1_000

/** $1 bigint: account in the path; $2 text: destination. */
const selectAccount = statement('account-of-destination')`select account_of_destination($1, $2) as id`

export class Recipients {
  readonly #database: Pick<Database, 'lookup'>
  /** After a stale admission the account is read again, so its cached destinations are no longer used. */
  readonly #cached = new WeakMap<Account, LRUCache<string, Admission>>()

  constructor(database: Pick<Database, 'lookup'>) {
    this.#database = database
  }

  /** Admits a delivery to its destination's account, if that has the same organization and secret as the account in the path. */
  async admit({ account, admission }: Found, destination: string | null): Promise<Admission> {
    if (!isForAnotherBot(account, destination)) return admission
    const cached = this.#cached.get(account) ?? new LRUCache<string, Admission>({ max: DESTINATIONS_MAX })
    this.#cached.set(account, cached)
    const seen = cached.get(destination)
    if (seen !== undefined) return seen
    const [row] = await this.#database.lookup<{ id: AccountId }>('account', selectAccount, [
      account.id,
      destination,
    ])
    const foreign = { pathAccountId: account.id, botUserId: destination }
    const admitted = { ...admission, accountId: row?.id ?? account.id, foreign }
    cached.set(destination, admitted)
    return admitted
  }
}

/** An account without a bot user id accepts every delivery at its webhook. */
export function isForAnotherBot(account: Account, destination: string | null): destination is string {
  return Boolean(destination) && Boolean(account.botUserId) && destination !== account.botUserId
}
