/**
 * Where deliveries of all sources meet: each waits for the flush that carries its events, and is answered when
 * that flush is committed. Batches form by themselves: whatever arrives during one flush goes in the next, so
 * a lone delivery waits for nothing and a crowd shares its commits.
 */
import type { Link } from '@opentelemetry/api'
import type { AccountId } from '../accounts/account.ts'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseUnavailable, LOCK_TIMEOUT, STATEMENT_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import type { AtOnce } from '../postgres/statement.ts'
import { inSpan, linkToHere } from '../trace.ts'
import type { IntakeEvent } from './event.ts'
import {
  type Admission,
  type AdmittedEvent,
  type FlushOptions,
  flushWithRetry,
  isConflict,
  type Outcome,
} from './flush.ts'

export interface Receipt {
  accepted: number
  duplicates: number
}

/** People whom the events of one flush name, at least one each. Larger flushes gain nothing and hold row locks longer. */
const FLUSH_MAX_PEOPLE = 256
/** UTF-16 units of payload in one flush: what a tenth of a second writes. */
const FLUSH_MAX_PAYLOAD = 4 * 1024 * 1024
/**
 * Flushes on their way at once, one behind the other in the session: the database goes on with the second the moment it has
 * committed the first, instead of waiting until we notice.
 */
const FLUSHES_ON_THEIR_WAY = 2
/** A second flush goes ahead only with this many events: smaller ones waste more than the waiting costs (measured: 8 to 48). */
const FLUSH_AHEAD_MIN_EVENTS = 32
/** Parts of a batch flushed at once, where it is taken apart: half of the sessions are left to everybody else. */
const APART_AT_ONCE = 4
/** What the deliveries of one account may take together: the batch has taken longer, and all others wait. */
const APART_STATEMENT_TIMEOUT_MS = 1_000
/**
 * Of deliveries of one account, taken apart because somebody holds rows of theirs: they have waited for them already, and now each
 * costs all others so much. 256 of them, 1.3 s at worst. Accounts wait as long as ever: what they meet is the next flush.
 */
const APART_LOCK_TIMEOUT_MS = 20
/** Events that may wait: a few seconds of work at full speed. Beyond it senders are told to come back. */
const QUEUE_MAX_EVENTS = 20_000
/** UTF-16 units of payload that may wait: keeps memory bounded when events are large. */
const QUEUE_MAX_PAYLOAD = 64 * 1024 * 1024

/** The account that admitted a delivery has changed, or is gone, since it was read: it must be read again. */
export class StaleAdmission extends Error {
  override readonly name = 'StaleAdmission'
}

/** Told of what happens, for the metrics. */
export interface IntakeObserver {
  /** events of one delivery: what became of them, how many of the accepted without effect, how long after they happened */
  received: (events: IntakeEvent[], receipt: Receipt, unapplied: number) => void
  flushed: (events: number, seconds: number) => void
  /** events that wait for a flush */
  queued: (events: number) => void
}

interface Waiting {
  events: AdmittedEvent[]
  people: number
  payloadLength: number
  /** the delivery's span, if it is traced */
  link: Link | null
  resolve: (outcomes: Outcome[]) => void
  reject: (error: unknown) => void
}

export class Intake {
  readonly #database: Database
  /** one session for all flushes; what is taken apart goes through the pool */
  readonly #lane: AtOnce
  readonly #onPoison: (error: unknown) => void
  readonly #observer: IntakeObserver | null
  readonly #queue: Waiting[] = []
  #queuedEvents = 0
  #queuedPayload = 0
  #flushesOnTheirWay = 0

  /** @param onPoison told of every error that a single event caused, for the log: the event itself is kept */
  constructor(
    database: Database,
    onPoison: (error: unknown) => void,
    observer: IntakeObserver | null = null,
  ) {
    this.#observer = observer
    this.#database = database
    this.#lane = database.lane()
    this.#onPoison = onPoison
  }

  /**
   * Resolves when all events are committed to disk. Rejects with `unavailable` (the sender should try again;
   * nothing is lost by it, and nothing counts twice) or with StaleAdmission, with nothing kept.
   */
  async receive(admission: Admission, events: IntakeEvent[]): Promise<Receipt> {
    if (events.length === 0) return { accepted: 0, duplicates: 0 }
    const payloadLength = events.reduce((sum, { payload }) => sum + (payload?.length ?? 0), 0)
    if (
      this.#queuedEvents + events.length > QUEUE_MAX_EVENTS ||
      this.#queuedPayload + payloadLength > QUEUE_MAX_PAYLOAD
    ) {
      throw new AppError('unavailable', { retryAfterSeconds: 1 })
    }
    const outcomes = await new Promise<Outcome[]>((resolve, reject) => {
      const admitted = events.map((event) => ({ admission, event }))
      const people = events.reduce((sum, { otherUserIds }) => sum + 1 + otherUserIds.length, 0)
      this.#queue.push({ events: admitted, people, payloadLength, link: linkToHere(), resolve, reject })
      this.#queuedEvents += events.length
      this.#queuedPayload += payloadLength
      this.#observer?.queued(this.#queuedEvents)
      this.#flushWaiting()
    })
    if (outcomes.includes('stale')) throw new StaleAdmission()
    const duplicates = outcomes.filter((outcome) => outcome === 'duplicate').length
    const unapplied = outcomes.filter((outcome) => outcome === 'unapplied').length
    const receipt = { accepted: outcomes.length - duplicates, duplicates }
    this.#observer?.received(events, receipt, unapplied)
    return receipt
  }

  #flushWaiting(): void {
    if (this.#queuedEvents === 0) return
    if (this.#flushesOnTheirWay === 0) this.#flushNext()
    else if (this.#flushesOnTheirWay < FLUSHES_ON_THEIR_WAY && this.#queuedEvents >= FLUSH_AHEAD_MIN_EVENTS) {
      this.#flushNext()
    }
  }

  #flushNext(): void {
    const deliveries = this.#take()
    const events = deliveries.flatMap((delivery) => delivery.events)
    this.#flushesOnTheirWay += 1
    this.#observer?.queued(this.#queuedEvents)
    const startedAtMs = performance.now()
    const links = deliveries.flatMap(({ link }) => link ?? [])
    const options = { root: true, links, attributes: { 'oa_audience.events': events.length } }
    inSpan('flush', options, () => flushWithRetry(this.#lane, this.#database, events)).then(
      (outcomes) => {
        this.#flushesOnTheirWay -= 1
        this.#observer?.flushed(events.length, (performance.now() - startedAtMs) / 1000)
        // The next flush is on its way before this one is answered: the database never waits for us.
        this.#flushWaiting()
        settle(deliveries, outcomes)
      },
      async (error) => {
        await this.#isolate(deliveries, error)
        this.#flushesOnTheirWay -= 1
        this.#flushWaiting()
      },
    )
  }

  #take(): Waiting[] {
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
    return taken
  }

  /**
   * A batch that the database refuses is taken apart, by accounts and then by deliveries, until what spoils it stands alone: an
   * event that cannot be applied is kept unapplied, a delivery whose rows somebody else holds is told to come back.
   */
  async #isolate(deliveries: Waiting[], error: unknown): Promise<void> {
    const [only] = deliveries
    const accounts = byAccount(deliveries)
    // What takes one account's deliveries too long would take each of them too long, one after the other.
    const isTooLong = sqlStateOf(error) === STATEMENT_TIMEOUT && accounts.length === 1
    if (isAway(error) || isTooLong || (deliveries.length === 1 && sqlStateOf(error) === LOCK_TIMEOUT)) {
      for (const { reject } of deliveries) reject(error)
    } else if (only !== undefined && deliveries.length === 1) {
      await this.#flushOneByOne(only)
    } else {
      const [parts, limits] =
        accounts.length > 1
          ? [accounts, { statementTimeoutMs: APART_STATEMENT_TIMEOUT_MS }]
          : [deliveries.map((delivery) => [delivery]), { lockTimeoutMs: APART_LOCK_TIMEOUT_MS }]
      for (const { part, error } of await this.#flushApart(parts, limits)) await this.#isolate(part, error)
    }
  }

  /** Flushes each part by itself. Returns those that the database refused. */
  async #flushApart(
    parts: Waiting[][],
    limits: FlushOptions,
  ): Promise<Array<{ part: Waiting[]; error: unknown }>> {
    const refused: Array<{ part: Waiting[]; error: unknown }> = []
    const waiting = [...parts]
    const work = async () => {
      for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) {
        try {
          const events = part.flatMap((delivery) => delivery.events)
          settle(part, await flushWithRetry(this.#database, this.#database, events, limits))
        } catch (error) {
          refused.push({ part, error })
          // Each of those that wait would find it out by waiting for it.
          if (isAway(error)) refused.push(...waiting.splice(0).map((part) => ({ part, error })))
        }
      }
    }
    await Promise.all(Array.from({ length: APART_AT_ONCE }, work))
    return refused
  }

  async #flushOneByOne({ events, resolve, reject }: Waiting): Promise<void> {
    const outcomes: Outcome[] = []
    try {
      for (const event of events) outcomes.push(await this.#flushOrKeepUnapplied(event))
      resolve(outcomes)
    } catch (error) {
      reject(error)
    }
  }

  async #flushOrKeepUnapplied(event: AdmittedEvent): Promise<Outcome> {
    try {
      const [outcome] = await flushWithRetry(this.#database, this.#database, [event])
      return outcome as Outcome
    } catch (error) {
      if (!isAboutTheEvent(error)) throw error
      this.#onPoison(error)
      const [outcome] = await flushWithRetry(this.#database, this.#database, [unapplied(event, error)])
      return outcome as Outcome
    }
  }
}

function settle(deliveries: Waiting[], outcomes: Outcome[]): void {
  let start = 0
  for (const { events, resolve } of deliveries) {
    resolve(outcomes.slice(start, start + events.length))
    start += events.length
  }
}

function byAccount(deliveries: Waiting[]): Waiting[][] {
  const accounts = new Map<AccountId | undefined, Waiting[]>()
  for (const delivery of deliveries) {
    const accountId = delivery.events[0]?.admission.accountId
    const theirs = accounts.get(accountId)
    if (theirs === undefined) accounts.set(accountId, [delivery])
    else theirs.push(delivery)
  }
  return [...accounts.values()]
}

/** The database, not what it was asked: trying the parts one by one would only take longer. */
function isAway(error: unknown): boolean {
  const isAboutItsRows = [LOCK_TIMEOUT, STATEMENT_TIMEOUT].includes(sqlStateOf(error) ?? '')
  return error instanceof DatabaseUnavailable && !isConflict(error) && !isAboutItsRows
}

/**
 * 22 data, 23514 check, 54 too large: certainly about the event. Anything else, a missing column for one, is a fault
 * of ours or of the set-up: the sender keeps the event until it is mended.
 */
function isAboutTheEvent(error: unknown): boolean {
  return /^(22|54)|^23514$/.test(sqlStateOf(error) ?? '')
}

function unapplied({ admission, event }: AdmittedEvent, error: unknown): AdmittedEvent {
  const failure = `the database refused to apply it (SQLSTATE ${sqlStateOf(error)})`
  return { admission, event: { ...event, effect: { type: 'none' }, failure } }
}
