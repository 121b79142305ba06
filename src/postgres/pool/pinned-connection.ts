/** A connection that stays leased, for frequent pipelines. */
import { endsConnection, isLostConnection, isUnprepared } from '../faults.ts'
import type { BoundStatement, Row, SendPipeline } from '../statement.ts'
import { type Lease, sendTransaction } from './pool.ts'

/** A connection that died while idle fails the next pipeline within milliseconds. A slower failure is a fault of the database. */
const LOST_WITHIN_MS = 500
/** The pool may hand out several connections that are about to be closed. Each attempt prepares one more of failed statements. */
const ATTEMPTS_MAX = 10

/** Sends immediately, behind the pipelines in flight. A pool hands out a connection one turn of the event loop later. */
export class PinnedConnection {
  readonly #connect: () => Promise<Lease>
  #connection: Promise<Lease> | null = null
  #inFlight = 0
  #isReleased = false
  #onLost: () => void = () => undefined

  constructor(connect: () => Promise<Lease>) {
    this.#connect = connect
  }

  /**
   * If the connection is lost, the transaction may already have committed, and it is sent again. Reads are idempotent, and so are
   * flushes: the deliveries of a flush that is sent twice count as duplicates.
   */
  readonly pipelineIdempotent: SendPipeline = async (statements) => {
    const startedAtMs = performance.now()
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.pipelineOnce(statements)
      } catch (error) {
        const isLate = performance.now() - startedAtMs > LOST_WITHIN_MS
        const isLost = isLostConnection(error) && !isLate
        if (!(isLost || isUnprepared(error)) || attempt === ATTEMPTS_MAX) throw error
      }
    }
  }

  /** @param listener called when the session and its advisory locks end; a network failure may be noticed later */
  whenLost(listener: () => void): void {
    this.#onLost = listener
  }

  /** Ends the session, and with it its advisory locks. The next pipeline opens another one. */
  reset(): void {
    const connection = this.#connection
    connection?.then((lease) => this.#drop(connection, lease)).catch(() => undefined)
  }

  release(): void {
    this.#isReleased = true
    if (this.#inFlight === 0) this.reset()
  }

  /** Sends a transaction once. For work that depends on the session, such as its advisory locks. */
  async pipelineOnce(statements: BoundStatement[]): Promise<Row[][]> {
    this.#connection ??= this.#open()
    const connection = this.#connection
    const lease = await connection
    this.#inFlight += 1
    try {
      return await sendTransaction(lease.client, statements)
    } catch (error) {
      if (endsConnection(error)) this.#drop(connection, lease)
      throw error
    } finally {
      this.#inFlight -= 1
      if (this.#isReleased) this.release()
    }
  }

  #open(): Promise<Lease> {
    const connection = this.#connect()
    connection.then(
      // The next pipeline must not use a connection that died while idle.
      (lease) => lease.client.once('end', () => this.#drop(connection, lease)),
      () => {
        this.#connection = null
      },
    )
    return connection
  }

  #drop(connection: Promise<Lease>, lease: Lease): void {
    if (this.#connection !== connection) return
    this.#connection = null
    this.#onLost()
    lease.release(true)
  }
}
