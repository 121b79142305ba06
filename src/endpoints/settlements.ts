/** How attempts ended, written to the database in batches: one transaction for all that ended within some milliseconds. */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import type { BoundStatement } from '../postgres/statement.ts'
import { toStorableText } from '../postgres/storable.ts'
import { completeDeliveries, noteAnswers, postponeDeliveries, releaseDeliveries } from './backlog.ts'
import type { Answer } from './post.ts'

const SETTLE_MS = 20
/** While the database is down. */
const RETRY_MS = 1_000
/** Backoff doubles from the first delay to the last, with half of it at random, so that retries do not come in waves. */
const FIRST_RETRY_MS = 5_000
const LAST_RETRY_MS = 2 * 60 * 60 * 1000
/** After so many hours of attempts a delivery has failed. */
const RETRY_HOURS = 24
/** An answer may ask for a longer pause, up to this. */
const RETRY_AFTER_MAX_MS = 24 * 60 * 60 * 1000

interface Postponed {
  delivery: LeasedDelivery
  answer: Answer
  delayMs: number
  tookMs: number
}

/** Milliseconds until the next attempt, after the given number of attempts. */
export function retryDelayMs(attempts: number, answer: Answer, random = Math.random()): number {
  const backoffMs = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.max(0, attempts - 1))
  const jittered = Math.min(LAST_RETRY_MS, backoffMs * (1 + random / 2))
  const isLimiting = answer.status === 429 || answer.status === 503
  const asked = isLimiting ? Math.min(RETRY_AFTER_MAX_MS, answer.retryAfterMs ?? 0) : 0
  return Math.ceil(Math.max(jittered, asked))
}

export class Settlements {
  readonly #connection: PinnedConnection
  #completed: Array<{ delivery: LeasedDelivery; change: bigint | null }> = []
  #postponed: Postponed[] = []
  #released: LeasedDelivery[] = []
  #answers = new Map<bigint, Answer>()
  #timer: NodeJS.Timeout | null = null

  constructor(connection: PinnedConnection) {
    this.#connection = connection
  }

  /** @param change the number of the change that was sent, for a member */
  complete(delivery: LeasedDelivery, change: bigint | null): void {
    this.#completed.push({ delivery, change })
    this.#settleSoon(SETTLE_MS)
  }

  postpone(delivery: LeasedDelivery, answer: Answer, attempts: number, tookMs: number): void {
    this.#postponed.push({ delivery, answer, delayMs: retryDelayMs(attempts, answer), tookMs })
    this.#settleSoon(SETTLE_MS)
  }

  /** Returns a delivery that was leased and not tried. */
  release(delivery: LeasedDelivery): void {
    this.#released.push(delivery)
    this.#settleSoon(SETTLE_MS)
  }

  note(endpointId: bigint, answer: Answer): void {
    this.#answers.set(endpointId, answer)
  }

  async settle(): Promise<void> {
    const statements = this.#statements()
    const taken = [this.#completed, this.#postponed, this.#released, this.#answers] as const
    this.#completed = []
    this.#postponed = []
    this.#released = []
    this.#answers = new Map()
    if (statements.length === 0) return
    try {
      await this.#connection.pipelineIdempotent(statements)
    } catch {
      // The database is down. What is not settled when the leases end is sent again.
      this.#completed.unshift(...taken[0])
      this.#postponed.unshift(...taken[1])
      this.#released.unshift(...taken[2])
      this.#answers = new Map([...taken[3], ...this.#answers])
      this.#settleSoon(RETRY_MS)
    }
  }

  #settleSoon(ms: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      void this.settle()
    }, ms)
  }

  #statements(): BoundStatement[] {
    const [completed, postponed, released, answers] = [
      this.#completed,
      this.#postponed,
      this.#released,
      [...this.#answers],
    ]
    const statements: BoundStatement[] = []
    if (completed.length > 0) {
      const changes = int8Array(completed.map(({ change }) => change))
      const values = [...keysOf(completed.map(({ delivery }) => delivery)), changes]
      statements.push({ statement: completeDeliveries, values })
    }
    if (postponed.length > 0) {
      const values = [
        ...keysOf(postponed.map(({ delivery }) => delivery)),
        int4Array(postponed.map(({ answer }) => answer.status)),
        textArray(postponed.map(({ answer }) => toStorableText(answer.text))),
        int4Array(postponed.map(({ delayMs }) => delayMs)),
        int4Array(postponed.map(({ tookMs }) => Math.ceil(tookMs))),
        RETRY_HOURS,
      ]
      statements.push({ statement: postponeDeliveries, values })
    }
    if (released.length > 0) statements.push({ statement: releaseDeliveries, values: keysOf(released) })
    if (answers.length > 0) {
      const values = [
        int8Array(answers.map(([id]) => id)),
        int4Array(answers.map(([, { status }]) => status)),
        textArray(answers.map(([, { text }]) => toStorableText(text))),
      ]
      statements.push({ statement: noteAnswers, values })
    }
    return statements
  }
}

const keysOf = (deliveries: LeasedDelivery[]) => [
  int8Array(deliveries.map(({ accountId }) => accountId)),
  int8Array(deliveries.map(({ id }) => id)),
]
