/** The load of `oa-audience prove`, with a record of every acknowledged event. */
import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError } from '../../src/errors.ts'
import { Book } from '../load/book.ts'
import { RetryingClient } from '../load/client.ts'
import { Group } from '../load/group.ts'
import { Loops } from '../load/loops.ts'
import type { ProveAccount } from './account.ts'
import { RECOVERY_MS } from './service.ts'

const SENDERS = 24
const PEOPLE_PER_SENDER = 8
/** LINE waits as long for a response. */
const RESPONSE_TIMEOUT_MS = 2_000
const POLL_MS = 50

/** Concurrent senders. Each repeats its delivery until it is acknowledged, and sometimes once more. */
export class Load {
  readonly #client: RetryingClient
  readonly #loops = new Loops()
  readonly #book: Book
  /** deliveries */
  acknowledged = 0
  /** ids of all acknowledged events */
  eventIds: string[] = []

  /** @param url of the service */
  constructor(url: string, account: ProveAccount) {
    this.#client = new RetryingClient([url], RESPONSE_TIMEOUT_MS)
    this.#book = new Book({ ...account, oaHash: '', trackingKey: '', chatSecret: null, headers: {} })
    const onAcknowledged = (events: Array<{ event: { webhookEventId: string } }>) => {
      this.acknowledged += 1
      for (const { event } of events) this.eventIds.push(event.webhookEventId)
    }
    for (let sender = 0; sender < SENDERS; sender += 1) {
      const group = new Group(this.#client, this.#book, PEOPLE_PER_SENDER, { onAcknowledged })
      this.#loops.add(0, () => group.deliver())
    }
  }

  get repeated(): number {
    return this.#client.repeated
  }

  /** user id → number of acknowledged events that name it */
  get expected(): Map<string, number> {
    return new Map([...this.#book.people.values()].map(({ userId, events }) => [userId, events]))
  }

  start(): void {
    this.#loops.start()
  }

  /** Starts no new delivery and resolves when all started ones are acknowledged. */
  async finish(): Promise<void> {
    const all = this.#loops.finish().then(() => true)
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
      await sleep(POLL_MS)
      if (performance.now() - startedAtMs > RECOVERY_MS) {
        throw new FatalError(`no delivery was acknowledged within ${RECOVERY_MS / 1000} s after the failover`)
      }
    }
    return Math.round(performance.now() - startedAtMs)
  }

  stop(): void {
    this.#client.close()
    this.#loops.finish().catch(() => undefined)
  }
}
