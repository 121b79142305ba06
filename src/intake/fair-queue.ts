/** The deliveries of one source that wait for a flush: bounded, and shared fairly between accounts. */
import type { AccountId } from '../accounts/account.ts'
import type { QueuedDelivery } from './queued-delivery.ts'

/** People whom the events of one flush name. Larger flushes gain nothing and hold row locks longer. */
const FLUSH_MAX_PEOPLE = 256
/** UTF-16 units of payload in one flush: what a tenth of a second writes. */
const FLUSH_MAX_PAYLOAD = 4 * 1024 * 1024

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
 * Accounts take turns, one delivery each, so an account that sends much delays only itself. An account may hold as much as is
 * still free: half of the queue if it is alone, and a queue is never so full that no other account finds room.
 */
export class FairQueue {
  readonly #limits: QueueLimits
  /** In the order of turns. */
  readonly #accounts = new Map<AccountId, AccountQueue>()
  #events = 0
  #payload = 0

  constructor(limits: QueueLimits) {
    this.#limits = limits
  }

  get events(): number {
    return this.#events
  }

  /** Returns false, and queues nothing, if the account would hold more than its share. */
  push(delivery: QueuedDelivery): boolean {
    const { accountId, payloadLength } = delivery
    const events = delivery.events.length
    const account = this.#accounts.get(accountId) ?? { deliveries: [], events: 0, payload: 0 }
    if (
      account.events + events > this.#limits.maxEvents - this.#events ||
      account.payload + payloadLength > this.#limits.maxPayload - this.#payload
    ) {
      return false
    }
    account.deliveries.push(delivery)
    this.#count(account, events, payloadLength)
    this.#accounts.set(accountId, account)
    return true
  }

  /** Takes the deliveries of the next flush: at least one, up to the limits of a flush. */
  take(): QueuedDelivery[] {
    const taken: QueuedDelivery[] = []
    let people = 0
    let payload = 0
    for (const [accountId, account] of this.#accounts) {
      const delivery = account.deliveries[0] as QueuedDelivery
      people += delivery.people
      payload += delivery.payloadLength
      if (taken.length > 0 && (people > FLUSH_MAX_PEOPLE || payload > FLUSH_MAX_PAYLOAD)) break
      taken.push(delivery)
      account.deliveries.shift()
      this.#count(account, -delivery.events.length, -delivery.payloadLength)
      // Setting the account again moves it behind the others, and this loop reaches it again.
      this.#accounts.delete(accountId)
      if (account.deliveries.length > 0) this.#accounts.set(accountId, account)
    }
    return taken
  }

  #count(account: AccountQueue, events: number, payload: number): void {
    account.events += events
    account.payload += payload
    this.#events += events
    this.#payload += payload
  }
}
