/** What the calls that one caller waits for may take together: a time limit, and retries after a rate limit. */

/** For all calls that share a budget. Each further one would take another second of the caller's time. */
const RATE_LIMITED_RETRIES = 1

export class CallBudget {
  readonly signal: AbortSignal | undefined
  #rateLimitedRetries = RATE_LIMITED_RETRIES

  /** @param signal aborts the calls before their own time limits */
  constructor(signal?: AbortSignal) {
    this.signal = signal
  }

  /** Whether a call that met the rate limit may be repeated. */
  takeRateLimitedRetry(): boolean {
    this.#rateLimitedRetries -= 1
    return this.#rateLimitedRetries >= 0
  }
}
