/** How attempts ended, written to the database in batches: one transaction for all that ended within some milliseconds. */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
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
/** After this many hours of attempts a delivery has failed. */
const RETRY_HOURS = 24

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
  // A longer pause than the longest of our own would only use up the hours after which the delivery has failed.
  const asked = isLimiting ? Math.min(LAST_RETRY_MS, answer.retryAfterMs ?? 0) : 0
  return Math.ceil(Math.max(jittered, asked))
}

/** What ended since the last settlement. */
interface Ended {
  completed: Array<{ delivery: LeasedDelivery; change: bigint | null }>
  postponed: Postponed[]
  released: LeasedDelivery[]
  /** The newest of each endpoint. */
  answers: Map<bigint, Answer>
}

const nothing = (): Ended => ({ completed: [], postponed: [], released: [], answers: new Map() })

export class Settlements {
  readonly #connection: PinnedConnection
  #ended = nothing()
  #timer: NodeJS.Timeout | null = null

  constructor(connection: PinnedConnection) {
    this.#connection = connection
  }

  /** @param change the number of the change that was sent, for a member */
  complete(delivery: LeasedDelivery, change: bigint | null): void {
    this.#ended.completed.push({ delivery, change })
    this.#settleSoon(SETTLE_MS)
  }

  postpone(delivery: LeasedDelivery, answer: Answer, attempts: number, tookMs: number): void {
    this.#ended.postponed.push({ delivery, answer, delayMs: retryDelayMs(attempts, answer), tookMs })
    this.#settleSoon(SETTLE_MS)
  }

  /** Returns a delivery that was leased and not tried. */
  release(delivery: LeasedDelivery): void {
    this.#ended.released.push(delivery)
    this.#settleSoon(SETTLE_MS)
  }

  note(endpointId: bigint, answer: Answer): void {
    this.#ended.answers.set(endpointId, answer)
  }

  async settle(): Promise<void> {
    const ended = this.#ended
    const statements = statementsFor(ended)
    if (statements.length === 0) return
    this.#ended = nothing()
    try {
      await this.#connection.pipelineIdempotent(statements)
    } catch {
      // The database is down. What is not settled when the leases end is sent again.
      const { completed, postponed, released, answers } = this.#ended
      this.#ended = {
        completed: [...ended.completed, ...completed],
        postponed: [...ended.postponed, ...postponed],
        released: [...ended.released, ...released],
        answers: new Map([...ended.answers, ...answers]),
      }
      this.#settleSoon(RETRY_MS)
    }
  }

  #settleSoon(ms: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      void this.settle()
    }, ms)
  }
}

function statementsFor({ completed, postponed, released, answers }: Ended): BoundStatement[] {
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
      textArray(postponed.map(({ answer }) => toStorableText(answer.reason))),
      int4Array(postponed.map(({ delayMs }) => delayMs)),
      int4Array(postponed.map(({ tookMs }) => Math.ceil(tookMs))),
      RETRY_HOURS,
    ]
    statements.push({ statement: postponeDeliveries, values })
  }
  if (released.length > 0) statements.push({ statement: releaseDeliveries, values: keysOf(released) })
  if (answers.size > 0) {
    const values = [
      int8Array([...answers.keys()]),
      int4Array([...answers.values()].map(({ status }) => status)),
      textArray([...answers.values()].map(({ reason }) => toStorableText(reason))),
    ]
    statements.push({ statement: noteAnswers, values })
  }
  return statements
}

const keysOf = (deliveries: LeasedDelivery[]) => [
  int8Array(deliveries.map(({ accountId }) => accountId)),
  int8Array(deliveries.map(({ id }) => id)),
]
