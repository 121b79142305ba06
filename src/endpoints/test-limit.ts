/** Limits tests of receivers, so that nobody uses them to load one. */
import { LRUCache } from 'lru-cache'
import { AppError } from '../errors.ts'
import { Shares } from '../http/shares.ts'

/** Tests of one endpoint or notification channel. */
const TEST_INTERVAL_MS = 2_000
/** Of one process and kind. A request may last 10 s, with a body of 20 KiB: see post.ts and response-budget.ts. */
const TESTS_IN_FLIGHT_MAX = 8
const REMEMBERED_MAX = 10_000

export class TestLimit {
  readonly #what: 'endpoint' | 'channel'
  readonly #recent = new LRUCache<bigint, true>({ max: REMEMBERED_MAX, ttl: TEST_INTERVAL_MS })
  readonly #shares = new Shares()

  constructor(what: 'endpoint' | 'channel') {
    this.#what = what
  }

  /** Throws `rate_limited` or `busy` if too many tests were made or are being made. */
  async run<T>(id: bigint, test: () => Promise<T>): Promise<T> {
    if (this.#recent.has(id)) throw this.#refuseRepetition()
    const end = this.#shares.begin([
      { key: String(id), max: 1, refusal: () => this.#refuseRepetition() },
      { key: 'all', max: TESTS_IN_FLIGHT_MAX, refusal: () => this.#refuseFurtherTests() },
    ])
    this.#recent.set(id, true)
    return test().finally(end)
  }

  #refuseRepetition(): AppError {
    const message = `This ${this.#what} was tested a moment ago. Wait 2 seconds, then test it again.`
    return new AppError('rate_limited', { message, retryAfterSeconds: TEST_INTERVAL_MS / 1000 })
  }

  #refuseFurtherTests(): AppError {
    const message = `Too many ${this.#what}s are being tested. Wait 10 seconds, then try again.`
    return new AppError('busy', { message, retryAfterSeconds: 10 })
  }
}
