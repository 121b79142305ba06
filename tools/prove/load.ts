/** The load of `oa-audience prove`, with a record of every acknowledged event. */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError } from '../../src/errors.ts'
import { signLine } from '../../src/intake/line/signature.ts'
import { Secret } from '../../src/secret.ts'
import { lineBody, lineEvent, randomUserId } from '../simulator/events.ts'
import { RECOVERY_MS } from './service.ts'

const PEOPLE = 200
const SENDERS = 24
const EVENTS_MAX = 3
/** Share of acknowledged deliveries that are sent again to test deduplication. */
const REPEATED_SHARE = 0.2
/** LINE waits as long for a response. */
const RESPONSE_TIMEOUT_MS = 2_000
const RETRY_MS = 50

/** Concurrent senders. Each repeats its delivery until it is acknowledged, and sometimes once more. */
export class Load {
  readonly #address: string
  readonly #channelSecret: Secret
  readonly #botUserId: string
  readonly #people = Array.from({ length: PEOPLE }, randomUserId)
  #senders: Array<Promise<void>> = []
  #isFinished = false
  #isStopped = false
  acknowledged = 0
  repeated = 0
  /** ids of all acknowledged events */
  eventIds: string[] = []
  /** user id → number of acknowledged events that name it */
  expected = new Map<string, number>()

  /** @param address webhook address of the account */
  constructor(address: string, channelSecret: string, botUserId: string) {
    this.#address = address
    this.#channelSecret = new Secret(channelSecret)
    this.#botUserId = botUserId
  }

  start(): void {
    this.#senders = Array.from({ length: SENDERS }, () => this.#send())
  }

  /** Starts no new delivery and resolves when all started ones are acknowledged. */
  async finish(): Promise<void> {
    this.#isFinished = true
    const all = Promise.all(this.#senders).then(() => true)
    if (!(await Promise.race([all, sleep(RECOVERY_MS, false, { ref: false })]))) {
      throw new FatalError(
        `some deliveries were not acknowledged within ${RECOVERY_MS / 1000} s after the last fault`,
      )
    }
  }

  /** Resolves with the milliseconds until the next delivery is acknowledged. */
  async waitForNext(): Promise<number> {
    const [before, startedAtMs] = [this.acknowledged, performance.now()]
    while (this.acknowledged === before) {
      await sleep(RETRY_MS)
      if (performance.now() - startedAtMs > RECOVERY_MS) {
        throw new FatalError(`no delivery was acknowledged within ${RECOVERY_MS / 1000} s after the failover`)
      }
    }
    return Math.round(performance.now() - startedAtMs)
  }

  stop(): void {
    this.#isFinished = true
    this.#isStopped = true
  }

  async #send(): Promise<void> {
    while (!this.#isFinished) {
      const events = Array.from({ length: 1 + randomInt(EVENTS_MAX) }, () => {
        const kind = ['message', 'follow', 'unfollow', 'postback'][randomInt(4)] as string
        const userId = this.#people[randomInt(PEOPLE)] as string
        return { userId, event: lineEvent(kind, userId) }
      })
      const body = lineBody(
        this.#botUserId,
        events.map(({ event }) => event),
      )
      while (!this.#isStopped && !(await this.#deliver(body))) {
        this.repeated += 1
        await sleep(RETRY_MS)
      }
      if (this.#isStopped) return
      this.acknowledged += 1
      for (const { userId, event } of events) {
        this.eventIds.push(event.webhookEventId)
        this.expected.set(userId, (this.expected.get(userId) ?? 0) + 1)
      }
      if (Math.random() < REPEATED_SHARE) {
        this.repeated += 1
        await this.#deliver(body)
      }
    }
  }

  #deliver(body: string): Promise<boolean> {
    return fetch(this.#address, {
      method: 'POST',
      headers: { 'x-line-signature': signLine(body, this.#channelSecret) },
      body,
      signal: AbortSignal.timeout(RESPONSE_TIMEOUT_MS),
    }).then(
      async (response) => {
        await response.arrayBuffer()
        return response.ok
      },
      () => false,
    )
  }
}
