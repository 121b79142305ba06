/** Writes the results of attempts to the database in batches: one transaction every SETTLE_MS. */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import type { BoundStatement } from '../postgres/statement.ts'
import { toStorableText } from '../postgres/storable.ts'
import { completeDeliveries, postponeDeliveries, releaseDeliveries } from './backlog.ts'
import { type AttemptResult, bindResults } from './history.ts'
import { type EndpointResponse, isAccepted } from './post.ts'

const SETTLE_MS = 20
const RETRY_MS = 1_000
/** The backoff doubles from FIRST to LAST. Up to half of it is added at random, so that retries do not come in waves. */
const FIRST_RETRY_MS = 5_000
const LAST_RETRY_MS = 2 * 60 * 60 * 1000
/** After this many hours of failed attempts, a delivery has failed permanently. */
const RETRY_HOURS = 24

interface Postponed {
  delivery: LeasedDelivery
  response: EndpointResponse
  delayMs: number
  tookMs: number
}

/** Returns the milliseconds until the next attempt, after the given number of attempts. */
export function retryDelayMs(attempts: number, response: EndpointResponse, random = Math.random()): number {
  const backoffMs = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.max(0, attempts - 1))
  const jittered = Math.min(LAST_RETRY_MS, backoffMs * (1 + random / 2))
  const isLimiting = response.status === 429 || response.status === 503
  // A pause beyond LAST_RETRY_MS would use up RETRY_HOURS with few attempts.
  const requested = isLimiting ? Math.min(LAST_RETRY_MS, response.retryAfterMs ?? 0) : 0
  return Math.ceil(Math.max(jittered, requested))
}

interface Ended {
  completed: Array<{ delivery: LeasedDelivery; change: bigint | null }>
  postponed: Postponed[]
  released: LeasedDelivery[]
  /** the last one of each endpoint */
  responses: Map<bigint, EndpointResponse>
  refused: AttemptResult[]
}

const nothing = (): Ended => ({
  completed: [],
  postponed: [],
  released: [],
  responses: new Map(),
  refused: [],
})

export class Settlements {
  readonly #connection: PinnedConnection
  #ended = nothing()
  #timer: NodeJS.Timeout | null = null

  constructor(connection: PinnedConnection) {
    this.#connection = connection
  }

  /** @param change the change number that was sent; null: the delivery has none */
  complete(delivery: LeasedDelivery, change: bigint | null): void {
    this.#ended.completed.push({ delivery, change })
    this.#settleSoon(SETTLE_MS)
  }

  postpone(delivery: LeasedDelivery, response: EndpointResponse, attempts: number, tookMs: number): void {
    this.#ended.postponed.push({ delivery, response, delayMs: retryDelayMs(attempts, response), tookMs })
    this.#settleSoon(SETTLE_MS)
  }

  /** Returns the lease of a delivery that was not tried. */
  release(delivery: LeasedDelivery): void {
    this.#ended.released.push(delivery)
    this.#settleSoon(SETTLE_MS)
  }

  /** Stores the result for operators. */
  note(result: AttemptResult): void {
    this.#ended.responses.set(result.delivery.endpointId, result.response)
    if (!isAccepted(result.response)) this.#ended.refused.push(result)
  }

  async settle(): Promise<void> {
    const ended = this.#ended
    const statements = statementsFor(ended)
    if (statements.length === 0) return
    this.#ended = nothing()
    try {
      await this.#connection.pipelineIdempotent(statements)
    } catch {
      // The database is down. Deliveries that are not settled when their leases end are sent again.
      const { completed, postponed, released, responses, refused } = this.#ended
      this.#ended = {
        completed: [...ended.completed, ...completed],
        postponed: [...ended.postponed, ...postponed],
        released: [...ended.released, ...released],
        responses: new Map([...ended.responses, ...responses]),
        refused: [...ended.refused, ...refused],
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

/** Results of endpoints are first, because the removal of an endpoint locks them before its deliveries. */
function statementsFor({ completed, postponed, released, responses, refused }: Ended): BoundStatement[] {
  const statements: BoundStatement[] = []
  if (responses.size > 0) statements.push(bindResults(responses, refused))
  if (completed.length > 0) {
    const changes = int8Array(completed.map(({ change }) => change))
    const values = [...keysOf(completed.map(({ delivery }) => delivery)), changes]
    statements.push({ statement: completeDeliveries, values })
  }
  if (postponed.length > 0) {
    const values = [
      ...keysOf(postponed.map(({ delivery }) => delivery)),
      int4Array(postponed.map(({ response }) => response.status)),
      textArray(postponed.map(({ response }) => toStorableText(response.reason))),
      int4Array(postponed.map(({ delayMs }) => delayMs)),
      int4Array(postponed.map(({ tookMs }) => Math.ceil(tookMs))),
      RETRY_HOURS,
    ]
    statements.push({ statement: postponeDeliveries, values })
  }
  if (released.length > 0) statements.push({ statement: releaseDeliveries, values: keysOf(released) })
  return statements
}

const keysOf = (deliveries: LeasedDelivery[]) => [
  int8Array(deliveries.map(({ accountId }) => accountId)),
  int8Array(deliveries.map(({ id }) => id)),
]
