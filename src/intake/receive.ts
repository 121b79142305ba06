/**
 * Stores deliveries in batches. Those that arrive during one flush are in the next one. So a single delivery does not wait, and many
 * deliveries share a commit.
 *
 * Accounts share flushes, and a flush waits up to 600 ms for a row that another program has locked. So an account with such a row is flushed
 * apart for some seconds, and all others wait for its lock once.
 */
import { SendersBarrier } from '../accounts/erasure-lock.ts'
import { AppError } from '../errors.ts'
import type { AccountId } from '../ids.ts'
import { deliveryStored, flushed, queueChanged } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import type { DeliveryCounts } from './delivery-counts.ts'
import type { Admission, EventOutcome, ForwardedDelivery, IntakeEvent, Source } from './event.ts'
import { FairQueue, type QueuedDelivery, type QueueLimits, settle, sliceDelivery } from './fair-queue.ts'
import { flush, type HandOver } from './flush.ts'
import { type FlushAlone, failDeliveries, flushIsolated, isLocked } from './isolate.ts'

interface Receipt {
  accepted: number
  duplicates: number
}

/** A receipt: every event is committed to disk. `stale`: the account has changed since the delivery was admitted. */
export type Reception = Receipt | 'stale'

/** Waiting for the flush in flight costs less than a smaller flush. Measured with 8 to 48, for syncs of 50 µs, 1 ms and 5 ms. */
const CONCURRENT_FLUSH_MIN_EVENTS = 32

/** Time that an account is flushed apart after it has waited for a lock. Then it can hold up the others again, for 600 ms. */
const APART_MS = 10_000

/** Resources of an instance that one source may use, so that no source delays the deliveries of another. */
export interface SourceShare extends QueueLimits {
  /**
   * Flushes in flight, each on its own connection. PostgreSQL commits concurrent flushes with one sync. Where a sync takes 5 ms, two
   * connections store a quarter more than one.
   */
  flushConnections: number
  /** Bytes of request bodies in memory until their response is sent. */
  maxBodyBytes: number
}

export class Intake {
  readonly #database: Database
  readonly #source: string
  readonly #queue: FairQueue
  readonly #counts: DeliveryCounts
  readonly #senders: SendersBarrier
  readonly #handOver: HandOver
  /** A connection is not idle while its failed batch is isolated, which limits the number of such batches. */
  readonly #idle: PinnedConnection[]
  #flushesInFlight = 0
  /** accounts of which another transaction has locked a row, and when they join the others again */
  readonly #apartUntilMs = new Map<AccountId, number>()
  readonly #lockedQueue: FairQueue
  #isFlushingLocked = false

  constructor(
    database: Database,
    { name, share: { flushConnections, maxEvents, maxPayload } }: Source & { share: SourceShare },
    counts: DeliveryCounts,
    handOver: HandOver,
  ) {
    this.#handOver = handOver
    this.#database = database
    this.#senders = new SendersBarrier(database)
    this.#source = name
    this.#counts = counts
    this.#queue = new FairQueue({ maxEvents, maxPayload })
    this.#lockedQueue = new FairQueue({ maxEvents: maxEvents / 4, maxPayload: maxPayload / 4 })
    this.#idle = Array.from({ length: flushConnections }, () => database.pin())
  }

  /**
   * Rejects with `unavailable` if too many events wait or the database is unavailable, or with the database's error. Some slices of a
   * large delivery may be stored then. The sender can safely retry: stored events are duplicates.
   * @param forwarded null: endpoints of the account do not receive the delivery
   */
  async receive(
    admission: Admission,
    events: IntakeEvent[],
    forwarded: ForwardedDelivery | null = null,
  ): Promise<Reception> {
    if (events.length === 0) {
      this.#counts.add(admission.accountId, this.#source, { deliveries: 1 }, 'last_at')
      return { accepted: 0, duplicates: 0 }
    }
    const slices = sliceDelivery(admission, events, forwarded)
    let outcomes: EventOutcome[]
    try {
      const isApart = this.#isApart(admission.accountId)
      const queue = isApart ? this.#lockedQueue : this.#queue
      if (!queue.push(slices)) throw new AppError('unavailable', { retryAfterSeconds: 1 })
      this.#publishQueue()
      if (isApart) void this.#flushLocked()
      else this.#flushNext()
      const [only] = slices
      outcomes =
        only !== undefined && slices.length === 1
          ? await only.outcomes
          : (await Promise.all(slices.map((slice) => slice.outcomes))).flat()
    } catch (error) {
      this.#counts.add(admission.accountId, this.#source, { failed: 1 })
      this.#database.noteDelivery(error)
      throw error
    }
    this.#database.noteDelivery(null)
    let duplicates = 0
    let unapplied = 0
    for (const outcome of outcomes) {
      if (outcome === 'stale') return 'stale'
      if (outcome === 'duplicate') duplicates += 1
      else if (outcome === 'unapplied') unapplied += 1
    }
    // A duplicate waits, too: the first attempt may have failed before it had waited.
    if (events.some(({ effect }) => effect.type === 'unsend')) await this.#senders.pass(admission.accountId)
    const accepted = outcomes.length - duplicates
    const counted = { deliveries: 1, accepted, duplicates, unapplied }
    this.#counts.add(admission.accountId, this.#source, counted, 'last_at')
    deliveryStored.publish({ source: this.#source, events, accepted, duplicates, unapplied })
    return { accepted, duplicates }
  }

  #flushNext(): void {
    if (this.#queue.events < (this.#flushesInFlight > 0 ? CONCURRENT_FLUSH_MIN_EVENTS : 1)) return
    const connection = this.#idle.pop()
    if (connection !== undefined) void this.#flushOn(connection)
  }

  async #flushOn(connection: PinnedConnection): Promise<void> {
    const deliveries = this.#queue.take()
    this.#publishQueue()
    const events = deliveries.flatMap((delivery) => delivery.events)
    this.#flushesInFlight += 1
    const startedAtMs = performance.now()
    try {
      const outcomes = await flush(connection.pipelineIdempotent, events, { handOver: this.#handOver })
      flushed.publish({ events: events.length, seconds: (performance.now() - startedAtMs) / 1000 })
      this.#flushesInFlight -= 1
      this.#idle.push(connection)
      // The next flush is sent before the responses of this one, so that the database never waits for this process.
      this.#flushNext()
      settle(deliveries, outcomes)
    } catch (error) {
      this.#flushesInFlight -= 1
      await flushIsolated(this.#flushAlone, deliveries, error, this.#setApart)
      this.#idle.push(connection)
      this.#flushNext()
    }
  }

  readonly #flushAlone: FlushAlone = (events, before) =>
    flush(this.#database.intake.pipeline, events, { before, handOver: this.#handOver })

  #publishQueue(): void {
    const queuedEvents = this.#queue.events + this.#lockedQueue.events
    queueChanged.publish({ source: this.#source, queuedEvents })
  }

  #isApart(accountId: AccountId): boolean {
    const untilMs = this.#apartUntilMs.get(accountId)
    if (untilMs === undefined) return false
    const isApart = performance.now() < untilMs
    if (!isApart) this.#apartUntilMs.delete(accountId)
    return isApart
  }

  readonly #setApart = (accountId: AccountId): void => {
    this.#apartUntilMs.set(accountId, performance.now() + APART_MS)
    const moved = this.#queue.remove(accountId)
    if (!this.#lockedQueue.push(moved))
      failDeliveries(moved, new AppError('unavailable', { retryAfterSeconds: 1 }))
    this.#publishQueue()
    void this.#flushLocked()
  }

  /** Flushes one delivery at a time, on a connection that nobody else waits for. */
  async #flushLocked(): Promise<void> {
    if (this.#isFlushingLocked) return
    this.#isFlushingLocked = true
    while (this.#lockedQueue.events > 0) {
      const [delivery] = this.#lockedQueue.take(1) as [QueuedDelivery]
      this.#publishQueue()
      const { accountId, events } = delivery
      try {
        delivery.resolve(await this.#flushAlone(events))
      } catch (error) {
        if (isLocked(error)) {
          this.#setApart(accountId)
          // The others would wait as long.
          failDeliveries([delivery, ...this.#lockedQueue.remove(accountId)], error)
          this.#publishQueue()
        } else await flushIsolated(this.#flushAlone, [delivery], error, () => undefined)
      }
    }
    this.#isFlushingLocked = false
  }
}
