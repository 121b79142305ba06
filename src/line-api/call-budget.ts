/** A shared limit of time and rate-limit retries for the calls of one caller. */

/** Each further retry would take another second of the caller's time. */
const RATE_LIMITED_RETRIES = 1

export class CallBudget {
  readonly signal: AbortSignal | undefined
  #rateLimitedRetries = RATE_LIMITED_RETRIES

  /** @param signal aborts the calls before their own time limits */
  constructor(signal?: AbortSignal) {
    this.signal = signal
  }

  /** Returns whether a rate-limited call may be retried. */
  takeRateLimitedRetry(): boolean {
    this.#rateLimitedRetries -= 1
    return this.#rateLimitedRetries >= 0
  }
}
