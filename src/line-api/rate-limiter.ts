/** Keeps the calls for each account below the platform's rate limits, which apply per channel and endpoint. */
import { setTimeout as sleep } from 'node:timers/promises'

/** A call that would wait longer is refused, because its caller has a time limit of its own. */
const WAIT_MAX_MS = 1_500
/** Unused calls accumulate for this long, so an idle account may send a burst. */
const BURST_MS = 1_000

interface Clock {
  /** Milliseconds of a monotonic clock. */
  now: () => number
  sleep: (ms: number) => Promise<unknown>
}

export class RateLimiter {
  readonly #intervalMs: number
  readonly #clock: Clock
  readonly #nextAtMs = new Map<bigint, number>()

  /** @param perSecond calls per second for each account */
  constructor(perSecond: number, clock: Clock = { now: () => performance.now(), sleep }) {
    this.#intervalMs = 1000 / perSecond
    this.#clock = clock
  }

  /** Resolves with true when the account may make its next call, or immediately with false if the wait would be too long. */
  async acquire(accountId: bigint): Promise<boolean> {
    const now = this.#clock.now()
    const at = Math.max(now - BURST_MS, this.#nextAtMs.get(accountId) ?? Number.NEGATIVE_INFINITY)
    if (at - now > WAIT_MAX_MS) return false
    this.#nextAtMs.set(accountId, at + this.#intervalMs)
    if (at > now) await this.#clock.sleep(at - now)
    return true
  }
}
