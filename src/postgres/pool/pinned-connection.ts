/** A connection that stays leased, for pipelines that follow each other closely. */
import { endsConnection, isLostConnection, isUnprepared } from '../faults.ts'
import type { BoundStatement, Row, SendPipeline } from '../statement.ts'
import { type Lease, sendTransaction } from './pool.ts'

/**
 * A connection that died while idle refuses the next pipeline within milliseconds: the server restarted, another server took
 * over, or a middlebox dropped the idle connection. Slower failures are the database's own.
 */
const LOST_WITHIN_MS = 500
/**
 * If the server closes all connections, the pool may hand out one after the other that is about to be closed. If statements
 * fail before they are prepared, those behind them are prepared one attempt after the other.
 */
const ATTEMPTS_MAX = 10

/**
 * A pool hands out a connection one turn of the event loop later, behind everything else that is due. A pinned connection
 * sends at once, behind the pipelines that are already in flight.
 */
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
   * Sends a transaction. Use it only for idempotent ones: if the connection is lost, the transaction may already have
   * committed, and it is sent again. Reads are idempotent, and so are flushes (then those of a committed flush that was
   * never answered count as duplicates).
   */
  readonly pipelineIdempotent: SendPipeline = async (statements) => {
    const startedAtMs = performance.now()
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#send(statements)
      } catch (error) {
        const isLate = performance.now() - startedAtMs > LOST_WITHIN_MS
        const isLost = isLostConnection(error) && !isLate
        if (!(isLost || isUnprepared(error)) || attempt === ATTEMPTS_MAX) throw error
      }
    }
  }

  /** Sends a transaction once. For what depends on the session, such as its advisory locks: a new session does not have them. */
  pipelineOnce(statements: BoundStatement[]): Promise<Row[][]> {
    return this.#send(statements)
  }

  /** @param listener is called when the session ends, with its advisory locks. A network failure may be noticed later. */
  whenLost(listener: () => void): void {
    this.#onLost = listener
  }

  /** Ends the session, and with it its advisory locks. The next pipeline opens another one. */
  reset(): void {
    const connection = this.#connection
    connection?.then((lease) => this.#drop(connection, lease)).catch(() => undefined)
  }

  /** Gives the connection up once nothing is in flight. */
  release(): void {
    this.#isReleased = true
    const connection = this.#connection
    if (this.#inFlight > 0) return
    connection?.then((lease) => this.#drop(connection, lease)).catch(() => undefined)
  }

  async #send(statements: BoundStatement[]): Promise<Row[][]> {
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
      // A connection that dies while idle must not be what the next pipeline meets.
      (lease) => lease.client.once('end', () => this.#drop(connection, lease)),
      () => {
        this.#connection = null
      },
    )
    return connection
  }

  /** Closes a connection instead of returning it: the pool opens new ones. */
  #drop(connection: Promise<Lease>, lease: Lease): void {
    if (this.#connection !== connection) return
    this.#connection = null
    this.#onLost()
    lease.release(true)
  }
}
