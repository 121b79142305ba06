/**
 * The locks of an account that keep erasures apart from writers of events and from bodies on their way to endpoints. Their
 * functions are in migrations/functions/flush.sql.
 */

import type { Database } from '../postgres/database.ts'
import type { Claimant } from '../postgres/pool/turns.ts'
import { statement } from '../postgres/statement.ts'

/**
 * $1 bigint: the account. Waits for bodies being written to its endpoints, which may contain the person, and lets no other be read
 * until this transaction ends. Then the same for its flushes.
 */
export const lockOutSendersAndFlushes = statement('lock-out-senders-and-flushes')`
    select lock_out_sending($1), lock_out_flushes($1)`

/** $1 bigint: the account. Waits for the bodies that were read before. */
export const waitForSenders = statement('wait-for-senders')`select lock_out_sending($1)`

/** $1 bigint: the account. Does not wait. Most accounts have no endpoint. */
const areSendersQuiet = statement('are-senders-quiet')`
    select case when exists (select from endpoint where channel_oa_id = $1) then is_sending_quiet($1) else true end
           as is_quiet`

/** Waits for the senders of an account after content was erased in a transaction of its own, as by an unsend. */
export class SendersBarrier {
  readonly #database: Database
  /** One wait of each account runs. All that ask meanwhile share the next one, which begins after what they committed. */
  readonly #running = new Map<bigint, Promise<void>>()
  readonly #next = new Map<bigint, Promise<void>>()

  constructor(database: Database) {
    this.#database = database
  }

  /**
   * Resolves when no body that was read before is still being written to an endpoint of the account. Rejects if the process of a
   * sender is frozen. A slow receiver takes one connection of the account's turns, and delays nobody else.
   */
  async pass(accountId: bigint): Promise<void> {
    const [row] = await this.#database.lookup<{ is_quiet: boolean }>('account', areSendersQuiet, [accountId])
    if (row?.is_quiet === true) return
    const running = this.#running.get(accountId)
    if (running === undefined) return this.#wait(accountId)
    const next = this.#next.get(accountId) ?? running.catch(() => undefined).then(() => this.#wait(accountId))
    this.#next.set(accountId, next)
    return next
  }

  #wait(accountId: bigint): Promise<void> {
    this.#next.delete(accountId)
    const tenant: Claimant = { accountId, organizationId: null }
    const wait = this.#database
      .forTenant(tenant)
      .query(waitForSenders, [accountId])
      .then(() => this.#running.delete(accountId))
      .then(() => undefined)
    this.#running.set(accountId, wait)
    wait.catch(() => this.#running.delete(accountId))
    return wait
  }
}

/**
 * $1 bigint: the account. Erasures wait for this transaction, and it sees those that have committed. Send it before any row is
 * locked, because locks are taken in one order everywhere.
 */
export const lockOutErasures = statement('lock-out-erasures')`
    select lock_out_erasures(array[$1::bigint], '{}')`
