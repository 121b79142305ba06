/**
 * Where deliveries of all sources meet: each waits for the flush that carries its events, and is answered when
 * that flush is committed. Batches form by themselves: whatever arrives during one flush goes in the next, so
 * a lone delivery waits for nothing and a crowd shares its commits.
 */
import type { AccountId } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import { type Database, DatabaseUnavailable } from '../postgres/database.ts'
import type { IntakeEvent } from './event.ts'
import { type AddressedEvent, flush, type Outcome } from './flush.ts'

export interface Receipt {
  accepted: number
  duplicates: number
}

/** Events in one flush. Larger ones gain nothing and hold row locks longer. */
const FLUSH_MAX_EVENTS = 256
/** Events that may wait: a few seconds of work at full speed. Beyond it senders are told to come back. */
const QUEUE_MAX_EVENTS = 20_000
/** UTF-16 units of payload that may wait: keeps memory bounded when events are large. */
const QUEUE_MAX_PAYLOAD = 64 * 1024 * 1024
/** Deadlocks with other programs that lock members; our own flushes lock in one order and cannot. */
const FLUSH_ATTEMPTS = 3

interface Waiting {
  events: AddressedEvent[]
  payloadLength: number
  resolve: (outcomes: Outcome[]) => void
  reject: (error: unknown) => void
}

export class Intake {
  readonly #database: Database
  readonly #onPoison: (error: unknown) => void
  readonly #queue: Waiting[] = []
  #queuedEvents = 0
  #queuedPayload = 0
  #flushing = false

  /** @param onPoison told of every error that a single event caused, for the log: the event itself is kept */
  constructor(database: Database, onPoison: (error: unknown) => void) {
    this.#database = database
    this.#onPoison = onPoison
  }

  /**
   * Resolves when all events are committed to disk. Rejects with `unavailable` (the sender should try again;
   * nothing is lost by it, and nothing counts twice) or `unknown_account` (removed a moment ago).
   */
  async receive(accountId: AccountId, events: IntakeEvent[]): Promise<Receipt> {
    if (events.length === 0) return { accepted: 0, duplicates: 0 }
    const payloadLength = events.reduce((sum, { payload }) => sum + payload.length, 0)
    if (
      this.#queuedEvents + events.length > QUEUE_MAX_EVENTS ||
      this.#queuedPayload + payloadLength > QUEUE_MAX_PAYLOAD
    ) {
      throw new AppError('unavailable', { retryAfterSeconds: 1 })
    }
    const outcomes = await new Promise<Outcome[]>((resolve, reject) => {
      const addressed = events.map((event) => ({ accountId, event }))
      this.#queue.push({ events: addressed, payloadLength, resolve, reject })
      this.#queuedEvents += events.length
      this.#queuedPayload += payloadLength
      if (!this.#flushing) this.#flushNext()
    })
    if (outcomes.includes('unknown_account')) throw new AppError('unknown_account')
    const accepted = outcomes.filter((outcome) => outcome === 'accepted').length
    return { accepted, duplicates: outcomes.length - accepted }
  }

  #flushNext(): void {
    const deliveries = this.#take()
    if (deliveries.length === 0) {
      this.#flushing = false
      return
    }
    this.#flushing = true
    this.#flushOrIsolate(deliveries.flatMap(({ events }) => events)).then(
      (outcomes) => {
        // The next flush is on its way before this one is answered: the database never waits for us.
        this.#flushNext()
        let start = 0
        for (const { events, resolve } of deliveries) {
          resolve(outcomes.slice(start, start + events.length))
          start += events.length
        }
      },
      (error) => {
        this.#flushNext()
        for (const { reject } of deliveries) reject(error)
      },
    )
  }

  #take(): Waiting[] {
    let size = 0
    let count = 0
    for (const { events } of this.#queue) {
      if (count > 0 && size + events.length > FLUSH_MAX_EVENTS) break
      size += events.length
      count += 1
    }
    const taken = this.#queue.splice(0, count)
    this.#queuedEvents -= size
    for (const { payloadLength } of taken) this.#queuedPayload -= payloadLength
    return taken
  }

  /** A batch that the database refuses is halved until the event that spoils it stands alone; that one is kept unapplied. */
  async #flushOrIsolate(batch: AddressedEvent[]): Promise<Outcome[]> {
    try {
      return await this.#flushPatiently(batch)
    } catch (error) {
      if (error instanceof DatabaseUnavailable) throw error
      const [only] = batch
      if (only === undefined) return []
      if (batch.length === 1) {
        this.#onPoison(error)
        return flush(this.#database, [unapplied(only, error)])
      }
      const middle = Math.ceil(batch.length / 2)
      const firstHalf = await this.#flushOrIsolate(batch.slice(0, middle))
      return [...firstHalf, ...(await this.#flushOrIsolate(batch.slice(middle)))]
    }
  }

  async #flushPatiently(batch: AddressedEvent[]): Promise<Outcome[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await flush(this.#database, batch)
      } catch (error) {
        if (attempt === FLUSH_ATTEMPTS || !isConflict(error)) throw error
      }
    }
  }
}

/** 40001 serialization failure, 40P01 deadlock: the same batch may well succeed at once. */
function isConflict(error: unknown): boolean {
  const code = ((error as Error).cause as { code?: string } | undefined)?.code
  return error instanceof DatabaseUnavailable && (code === '40001' || code === '40P01')
}

function unapplied({ accountId, event }: AddressedEvent, error: unknown): AddressedEvent {
  const state = (error as { code?: string }).code ?? 'unknown'
  const failure = `the database refused to apply it (SQLSTATE ${state})`
  return { accountId, event: { ...event, effect: { type: 'none' }, failure } }
}
