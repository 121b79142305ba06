/**
 * Finds the account whose events a delivery carries. All official accounts of a module channel (LINE Marketplace) share its
 * webhook URL and its channel secret, and only `destination` names the bot. A cached answer never decides alone: the flush
 * decides again in the transaction that stores the events.
 */
import { LRUCache } from 'lru-cache'
import type { Account, AccountId } from '../../accounts/account.ts'
import type { Database } from '../../postgres/database.ts'
import { statement } from '../../postgres/statement.ts'
import type { Found } from '../admit.ts'
import type { Admission } from '../flush-batch.ts'

/**
 * Destinations cached for each account in a path, so that one sender's invented destinations displace nobody else's. A delivery
 * with a further one costs a lookup, which is less than storing it costs.
 */
const DESTINATIONS_MAX = 1_000

/** $1 bigint: account in the path; $2 text: destination. */
const selectAccount = statement('account-of-destination')`select account_of_destination($1, $2) as id`

export class Recipients {
  readonly #database: Pick<Database, 'lookup'>
  /** By the account as it was read: after a stale admission the account is read again, and nothing is cached for it. */
  readonly #cached = new WeakMap<Account, LRUCache<string, Admission>>()

  constructor(database: Pick<Database, 'lookup'>) {
    this.#database = database
  }

  /** Admits a delivery to the account in its path, or to another of the same organization and with the same secret that its destination names. */
  async admit({ account, admission }: Found, destination: string | null): Promise<Admission> {
    if (!namesAnotherBot(account, destination)) return admission
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

/** An account without a bot user id takes every delivery that arrives at its webhook. */
export function namesAnotherBot(account: Account, destination: string | null): destination is string {
  return Boolean(destination) && Boolean(account.botUserId) && destination !== account.botUserId
}
