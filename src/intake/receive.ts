/**
 * Where deliveries of all sources meet. Each waits for the flush that carries its events and is answered when that flush has
 * committed. Batches form by themselves: what arrives during one flush goes into the next, so a lone delivery does not wait
 * and many deliveries share a commit.
 */
import { deliveriesDequeued, deliveryQueued, deliveryStored, flushing } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import type { IntakeEvent } from './event.ts'
import { type Admission, flushWithRetry, type Outcome } from './flush.ts'
import { flushIsolated } from './isolate.ts'
import { type QueuedDelivery, settle } from './queued-delivery.ts'

export interface Receipt {
  accepted: number
  duplicates: number
}

/**
 * A receipt: every event is committed to disk. Otherwise nothing was stored: `stale` means that the account has changed
 * since the delivery was admitted, `overloaded` that too many events wait.
 */
export type Reception = Receipt | 'stale' | 'overloaded'

/** People whom the events of one flush name. Larger flushes gain nothing and hold row locks longer. */
const FLUSH_MAX_PEOPLE = 256
/** UTF-16 units of payload in one flush: what a tenth of a second writes. */
const FLUSH_MAX_PAYLOAD = 4 * 1024 * 1024
/** The second flush is pipelined behind the first: the database starts it the moment it has committed the first. */
const FLUSHES_IN_FLIGHT_MAX = 2
/** Smaller flushes waste more than waiting for the first one costs (measured with 8 to 48). */
const SECOND_FLUSH_MIN_EVENTS = 32
/** A few seconds of work at full speed. Beyond it, senders are asked to retry. */
const QUEUE_MAX_EVENTS = 20_000
/** UTF-16 units of payload: bounds memory when events are large. */
const QUEUE_MAX_PAYLOAD = 64 * 1024 * 1024

export class Intake {
  readonly #database: Database
  /** All flushes share one connection. Batches that are split use the other connections of intake. */
  readonly #connection: PinnedConnection
  readonly #queue: QueuedDelivery[] = []
  #queuedEvents = 0
  #queuedPayload = 0
  #flushesInFlight = 0

  constructor(database: Database) {
    this.#database = database
    this.#connection = database.pin()
  }

  /**
   * Stores the events of one delivery. Rejects with DatabaseUnavailable, or the database's error, with nothing stored: the
   * sender should retry, which is always safe.
   */
  async receive(admission: Admission, events: IntakeEvent[]): Promise<Reception> {
    if (events.length === 0) return { accepted: 0, duplicates: 0 }
    const payloadLength = events.reduce((sum, { payload }) => sum + (payload?.length ?? 0), 0)
    if (
      this.#queuedEvents + events.length > QUEUE_MAX_EVENTS ||
      this.#queuedPayload + payloadLength > QUEUE_MAX_PAYLOAD
    ) {
      return 'overloaded'
    }
    const admitted = events.map((event) => ({ admission, event }))
    const people = events.reduce((sum, { otherUserIds }) => sum + 1 + otherUserIds.length, 0)
    const outcomes = await new Promise<Outcome[]>((resolve, reject) =>
      this.#enqueue({ events: admitted, people, payloadLength, resolve, reject }),
    )
    if (outcomes.includes('stale')) return 'stale'
    const duplicates = outcomes.filter((outcome) => outcome === 'duplicate').length
    const unapplied = outcomes.filter((outcome) => outcome === 'unapplied').length
    const accepted = outcomes.length - duplicates
    deliveryStored.publish({ source: admission.source.name, events, accepted, duplicates, unapplied })
    return { accepted, duplicates }
  }

  #enqueue(delivery: QueuedDelivery): void {
    this.#queue.push(delivery)
    this.#queuedEvents += delivery.events.length
    this.#queuedPayload += delivery.payloadLength
    deliveryQueued.publish({ delivery, queuedEvents: this.#queuedEvents })
    this.#flushQueued()
  }

  #flushQueued(): void {
    if (this.#queuedEvents === 0 || this.#flushesInFlight === FLUSHES_IN_FLIGHT_MAX) return
    if (this.#flushesInFlight === 0 || this.#queuedEvents >= SECOND_FLUSH_MIN_EVENTS) void this.#flushNext()
  }

  async #flushNext(): Promise<void> {
    const deliveries = this.#dequeue()
    this.#flushesInFlight += 1
    const events = deliveries.flatMap((delivery) => delivery.events)
    try {
      const outcomes = await flushing.run({ events: events.length, deliveries }, () =>
        flushWithRetry(
          (statements) => this.#connection.pipelineIdempotent(statements),
          this.#database.intake,
          events,
        ),
      )
      this.#flushesInFlight -= 1
      // The next flush is sent before this one is answered, so that the database never waits for us.
      this.#flushQueued()
      settle(deliveries, outcomes)
    } catch (error) {
      await flushIsolated(this.#database, deliveries, error)
      this.#flushesInFlight -= 1
      this.#flushQueued()
    }
  }

  /** Takes the oldest deliveries, at least one, up to the limits of a flush. */
  #dequeue(): QueuedDelivery[] {
    let people = 0
    let payload = 0
    let count = 0
    for (const delivery of this.#queue) {
      people += delivery.people
      payload += delivery.payloadLength
      if (count > 0 && (people > FLUSH_MAX_PEOPLE || payload > FLUSH_MAX_PAYLOAD)) break
      count += 1
    }
    const taken = this.#queue.splice(0, count)
    for (const { events, payloadLength } of taken) {
      this.#queuedEvents -= events.length
      this.#queuedPayload -= payloadLength
    }
    deliveriesDequeued.publish({ queuedEvents: this.#queuedEvents })
    return taken
  }
}
