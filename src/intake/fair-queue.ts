/** A bounded queue of the deliveries of one source that wait for a flush. */
import type { AccountId } from '../ids.ts'
import type { Admission, AdmittedEvent, EventOutcome, ForwardedDelivery, IntakeEvent } from './event.ts'

/** Work of one flush: see QueuedDelivery. Larger flushes gain nothing and hold row locks longer. */
const FLUSH_MAX_WORK = 256
/** UTF-16 units of payload in one flush. Other deliveries wait for them: 1 Mi ÷ 40 MB/s = 25 ms. */
const FLUSH_MAX_PAYLOAD = 1024 * 1024

/**
 * Work that an account may take in a turn. A slice of 128 costs 16 turns, in which each other account takes up to 128 deliveries of
 * one event. If a turn were one delivery of any size, more than ten small ones a second would wait behind slices for seconds.
 */
const COST_PER_TURN = 8
/** UTF-16 units of payload that cost as much as a person. A slice has up to 256 KiB, which cost as much as 128 people. */
const PAYLOAD_PER_PERSON = 2 * 1024

export interface QueueLimits {
  /** A few seconds of work at full speed. Beyond it, the response is 503. */
  maxEvents: number
  /** UTF-16 units. Bounds memory when events are large. */
  maxPayload: number
}

interface AccountQueue {
  deliveries: QueuedDelivery[]
  events: number
  payload: number
  /** Cost that the account may take now, saved in its turns. */
  credit: number
}

const costOf = ({ work, payloadLength }: QueuedDelivery) => Math.max(work, payloadLength / PAYLOAD_PER_PERSON)

/**
 * Accounts take turns by the cost of their deliveries (deficit round robin), so an account that sends much delays only itself. An
 * account may hold as much as is still free: half of the queue if it is alone. So other accounts always find room.
 */
export class FairQueue {
  readonly #limits: QueueLimits
  /** The key is a number, because hashing a bigint takes 1 µs. Ids beyond 2^53 that round to the same number share their turns. */
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

  /** Returns false, and queues nothing, if the account would hold too much. */
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

  /** At least one delivery. @param maxWork 1: one delivery, or one slice of a large one */
  take(maxWork = FLUSH_MAX_WORK): QueuedDelivery[] {
    const taken: QueuedDelivery[] = []
    let work = 0
    let payload = 0
    for (let account = this.#nextAccount(); account !== null; account = this.#nextAccount()) {
      const delivery = account.deliveries[0] as QueuedDelivery
      work += delivery.work
      payload += delivery.payloadLength
      if (taken.length > 0 && (work > maxWork || payload > FLUSH_MAX_PAYLOAD)) break
      taken.push(delivery)
      account.deliveries.shift()
      account.credit -= costOf(delivery)
      this.#count(account, -delivery.events.length, -delivery.payloadLength)
      if (account.deliveries.length > 0) continue
      account.credit = 0
      this.#turns.shift()
    }
    return taken
  }

  remove(accountId: AccountId): QueuedDelivery[] {
    const account = this.#accountOf(accountId)
    const { deliveries } = account
    if (deliveries.length === 0) return deliveries
    this.#turns.splice(this.#turns.indexOf(account), 1)
    this.#count(account, -account.events, -account.payload)
    Object.assign(account, { deliveries: [], credit: 0 })
    return deliveries
  }

  #nextAccount(): AccountQueue | null {
    for (;;) {
      const account = this.#turns[0]
      if (account === undefined) return null
      const cost = costOf(account.deliveries[0] as QueuedDelivery)
      if (account.credit >= cost) return account
      // If it is alone, it need not save.
      account.credit = this.#turns.length === 1 ? cost : account.credit + COST_PER_TURN
      this.#turns.shift()
      this.#turns.push(account)
    }
  }

  #accountOf(accountId: AccountId): AccountQueue {
    const number = Number(accountId)
    let account = this.#accounts.get(number)
    if (account === undefined) {
      account = { deliveries: [], events: 0, payload: 0, credit: 0 }
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

// Large deliveries are split into slices, so that other accounts wait for one slice only.

/** People in the events of a slice: about 3 ms of a flush. Most deliveries are far smaller. */
const SLICE_MAX_PEOPLE = 128
/** UTF-16 units of payload: 256 Ki ÷ 40 MB/s = 6 ms of a flush. A single event may be larger. */
const SLICE_MAX_PAYLOAD = 256 * 1024

/** A delivery, or a slice of a large one. */
export class QueuedDelivery {
  readonly accountId: AccountId
  readonly events: AdmittedEvent[] = []
  /** People in the events, at least one per event. */
  people = 0
  /** A unit takes some 25 µs: a person of an event, or a condition that is evaluated for the person. A costly condition takes 50 µs. */
  work = 0
  /** UTF-16 units. */
  payloadLength = 0
  resolve!: (outcomes: EventOutcome[]) => void
  reject!: (error: unknown) => void
  readonly outcomes = new Promise<EventOutcome[]>((resolve, reject) => {
    this.resolve = resolve
    this.reject = reject
  })

  constructor(accountId: AccountId) {
    this.accountId = accountId
  }
}

/** @param forwarded null: endpoints of the account do not receive the delivery */
export function sliceDelivery(
  admission: Admission,
  events: IntakeEvent[],
  forwarded: ForwardedDelivery | null,
): QueuedDelivery[] {
  const slices: QueuedDelivery[] = []
  let slice: QueuedDelivery | undefined
  for (const event of events) {
    const people = 1 + event.otherUserIds.length
    const payloadLength = event.payload.length
    const fits =
      slice !== undefined &&
      slice.people + people <= SLICE_MAX_PEOPLE &&
      slice.payloadLength + payloadLength <= SLICE_MAX_PAYLOAD
    if (slice === undefined || !fits) {
      slice = new QueuedDelivery(admission.accountId)
      slices.push(slice)
    }
    slice.events.push({ admission, event, forwarded })
    slice.people += people
    slice.work += people + (forwarded === null ? 0 : (admission.conditions ?? 0))
    slice.payloadLength += payloadLength
  }
  return slices
}

export function settle(deliveries: QueuedDelivery[], outcomes: EventOutcome[]): void {
  let start = 0
  for (const { events, resolve } of deliveries) {
    resolve(outcomes.slice(start, start + events.length))
    start += events.length
  }
}
