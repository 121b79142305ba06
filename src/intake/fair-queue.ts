/** The deliveries of one source that wait for a flush: bounded, and shared fairly between accounts. */
import type { AccountId } from '../accounts/account.ts'
import type { QueuedDelivery } from './queued-delivery.ts'

/** People whom the events of one flush name. Larger flushes gain nothing and hold row locks longer. */
const FLUSH_MAX_PEOPLE = 256
/** UTF-16 units of payload in one flush: at 40 MB/s, 25 ms, for which other deliveries wait. */
const FLUSH_MAX_PAYLOAD = 1024 * 1024

export interface QueueLimits {
  /** A few seconds of work at full speed. Beyond it, senders are asked to retry. */
  maxEvents: number
  /** UTF-16 units: bounds memory when events are large. */
  maxPayload: number
}

interface AccountQueue {
  deliveries: QueuedDelivery[]
  events: number
  payload: number
}

/**
 * Accounts take turns, one delivery or slice each, so an account that sends much delays only itself. An account may hold as much as is
 * still free: half of the queue if it is alone, and a queue is never so full that no other account finds room.
 */
export class FairQueue {
  readonly #limits: QueueLimits
  /**
   * Every account that has delivered, a small object each. By number, because a map hashes a bigint in 1 µs. Accounts whose ids
   * are beyond 2^53 and are the same number share their turns.
   */
  readonly #accounts = new Map<number, AccountQueue>()
  /** Accounts with deliveries, in the order of their turns. */
  readonly #turns: AccountQueue[] = []
  #events = 0
  #payload = 0

  constructor(limits: QueueLimits) {
    this.#limits = limits
  }

  get events(): number {
    return this.#events
  }

  /** Queues slices of one delivery. Returns false, and queues nothing, if the account would hold more than its share. */
  push(slices: QueuedDelivery[]): boolean {
    const [first] = slices
    if (first === undefined) return true
    const account = this.#accountOf(first.accountId)
    const events = slices.reduce((sum, slice) => sum + slice.events.length, 0)
    const payload = slices.reduce((sum, slice) => sum + slice.payloadLength, 0)
    if (
      account.events + events > this.#limits.maxEvents - this.#events ||
      account.payload + payload > this.#limits.maxPayload - this.#payload
    ) {
      return false
    }
    if (account.deliveries.length === 0) this.#turns.push(account)
    account.deliveries.push(...slices)
    this.#count(account, events, payload)
    return true
  }

  /** Takes the deliveries of the next flush: at least one, up to the limits of a flush. */
  take(): QueuedDelivery[] {
    const taken: QueuedDelivery[] = []
    let people = 0
    let payload = 0
    for (let account = this.#turns[0]; account !== undefined; account = this.#turns[0]) {
      const delivery = account.deliveries[0] as QueuedDelivery
      people += delivery.people
      payload += delivery.payloadLength
      if (taken.length > 0 && (people > FLUSH_MAX_PEOPLE || payload > FLUSH_MAX_PAYLOAD)) break
      taken.push(delivery)
      account.deliveries.shift()
      this.#count(account, -delivery.events.length, -delivery.payloadLength)
      this.#turns.shift()
      if (account.deliveries.length > 0) this.#turns.push(account)
    }
    return taken
  }

  #accountOf(accountId: AccountId): AccountQueue {
    const number = Number(accountId)
    let account = this.#accounts.get(number)
    if (account === undefined) {
      account = { deliveries: [], events: 0, payload: 0 }
      this.#accounts.set(number, account)
    }
    return account
  }

  #count(account: AccountQueue, events: number, payload: number): void {
    account.events += events
    account.payload += payload
    this.#events += events
    this.#payload += payload
  }
}
