/** Keeps calls for one account below the platform's limits, which are per channel and endpoint. */
import { setTimeout as sleep } from 'node:timers/promises'

/** A call that would wait longer is not made: whoever asked has a time limit of their own. */
const WAIT_MAX_MS = 1_500
/** What has not been used in this time is not saved up. */
const BURST_MS = 1_000

export class RateLimiter {
  readonly #intervalMs: number
  readonly #nextAtMs = new Map<bigint, number>()

  /** @param perSecond calls a second for each account */
  constructor(perSecond: number) {
    this.#intervalMs = 1000 / perSecond
  }

  /** Resolves with true when the account's next call may go out, or with false at once if that is too far off. */
  async acquire(accountId: bigint): Promise<boolean> {
    const now = performance.now()
    const at = Math.max(now - BURST_MS, this.#nextAtMs.get(accountId) ?? Number.NEGATIVE_INFINITY)
    if (at - now > WAIT_MAX_MS) return false
    this.#nextAtMs.set(accountId, at + this.#intervalMs)
    if (at > now) await sleep(at - now)
    return true
  }
}
