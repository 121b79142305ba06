/** Open-loop deliveries: each starts at its time, however long earlier ones take, and is repeated until it is acknowledged. */
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { Secret } from '../../dist/src/config/secret.js'
import { signLine } from '../../dist/src/line-api/line-signature.js'
import { lineBody, randomUserId, textMessage } from '../../dist/tools/simulator/events.js'

const INTERVAL_MS = 20
const PEOPLE = 200
const TIMEOUT_MS = 10_000
/** Doubles up to the maximum. LINE waits longer. */
const RETRY_MS = 500
const RETRY_MAX_MS = 4_000
/** Of the deliveries under pressure, one in this number is of the new person. */
const NEW_PERSON_EVERY = 10

export class OpenLoad {
  #url
  #account
  #people = Array.from({ length: PEOPLE }, randomUserId)
  #isStopped = false
  #running
  #open = new Set()
  /** Acknowledged events of each person: the book. */
  book = new Map()
  /** `atMs` is when the delivery was due; `ms` counts from then to its acknowledgment, with all attempts. */
  samples = []
  failedAttempts = 0
  sendsNewPerson = false
  startedPerSecond = 1000 / INTERVAL_MS

  constructor(url, account) {
    this.#url = `${url}/api/line/${account.id}`
    this.#account = account
    this.#running = this.#run()
  }

  /** Begins to record again. */
  take() {
    const taken = { samples: this.samples, failedAttempts: this.failedAttempts }
    this.samples = []
    this.failedAttempts = 0
    return taken
  }

  /** When the oldest delivery that is not acknowledged was due, or Infinity. */
  get oldestOpenMs() {
    return Math.min(...[...this.#open].map(({ atMs }) => atMs))
  }

  /** Resolves when every delivery is acknowledged. */
  async finish() {
    this.#isStopped = true
    await this.#running
    while (this.#open.size > 0) await sleep(INTERVAL_MS)
  }

  async #run() {
    let dueMs = performance.now()
    for (let no = 0; !this.#isStopped; no += 1) {
      void this.#deliver(no, dueMs)
      dueMs += INTERVAL_MS
      await sleep(Math.max(0, dueMs - performance.now()))
    }
  }

  async #deliver(no, atMs) {
    const person =
      this.sendsNewPerson && no % NEW_PERSON_EVERY === 0 ? this.#account.newPerson : this.#people[no % PEOPLE]
    const body = lineBody(this.#account.botUserId, [textMessage(person, 'Is the shop open today?')])
    const delivery = { atMs }
    this.#open.add(delivery)
    for (let retryMs = RETRY_MS; !(await this.#post(body)); retryMs = Math.min(2 * retryMs, RETRY_MAX_MS)) {
      this.failedAttempts += 1
      await sleep(retryMs)
    }
    this.#open.delete(delivery)
    this.book.set(person, (this.book.get(person) ?? 0) + 1)
    this.samples.push({ atMs, ms: performance.now() - atMs })
  }

  async #post(body) {
    const headers = {
      'content-type': 'application/json',
      'x-line-signature': signLine(body, new Secret(this.#account.channelSecret)),
    }
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS)
      const response = await fetch(this.#url, { method: 'POST', headers, body, signal })
      await response.arrayBuffer()
      return response.ok
    } catch {
      return false
    }
  }
}

/** Percentile of the samples' times, in milliseconds. */
export function percentile(samples, part) {
  const sorted = samples.map(({ ms }) => ms).sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0
}
