/** A session for transactions that follow each other closely. */
import type pg from 'pg'
import { inClientSpan } from '../trace.ts'
import { endsSession, toFault } from './faults.ts'
import type { AtOnce, BoundStatement, Row } from './statement.ts'
import { TransactionAtOnce } from './transaction-at-once.ts'

/**
 * A session that ended while nobody used it refuses the next transaction at once: after a restart of the server, a failover, or
 * where something between forgets silent connections. Slower failures are the database's own.
 */
const LOST_WITHIN_MS = 500

/**
 * A pool hands out its sessions a turn of the event loop later, behind everything else that is due. A lane keeps one, so
 * that a transaction is on its way the moment it is asked for, behind those that are. Only for what may be sent twice, for
 * nobody knows what a lost session still committed: reading, and flushes, which know their events again (and then count those of
 * a flush that was committed, and never answered, as duplicates).
 */
export class Lane implements AtOnce {
  readonly #connect: () => Promise<pg.PoolClient>
  #session: Promise<pg.PoolClient> | null = null
  #onTheirWay = 0
  #ended = false

  constructor(connect: () => Promise<pg.PoolClient>) {
    this.#connect = connect
  }

  async transactionAtOnce(statements: BoundStatement[]): Promise<Row[][]> {
    const startedAtMs = performance.now()
    try {
      return await this.#send(statements)
    } catch (error) {
      if (!endsSession(error) || performance.now() - startedAtMs > LOST_WITHIN_MS) throw error
      return this.#send(statements)
    }
  }

  async #send(statements: BoundStatement[]): Promise<Row[][]> {
    this.#session ??= this.#open()
    const session = this.#session
    const client = await session
    this.#onTheirWay += 1
    try {
      return await sendAtOnce(client, statements)
    } catch (error) {
      if (endsSession(error)) this.#drop(session, client)
      throw error
    } finally {
      this.#onTheirWay -= 1
      if (this.#ended) this.end()
    }
  }

  end(): void {
    this.#ended = true
    const session = this.#session
    if (this.#onTheirWay === 0) session?.then((client) => this.#drop(session, client)).catch(() => undefined)
  }

  #open(): Promise<pg.PoolClient> {
    const session = this.#connect()
    session.then(
      // A session that dies while nobody uses it must not be what the next transaction meets.
      (client) => client.once('end', () => this.#drop(session, client)),
      () => {
        this.#session = null
      },
    )
    return session
  }

  /** A session that is dropped for an error, or at the end, is closed: the pool makes new ones. */
  #drop(session: Promise<pg.PoolClient>, client: pg.PoolClient): void {
    if (this.#session !== session) return
    this.#session = null
    client.release(true)
  }
}

/** Statements by their names: their texts say no more, and their values are the data. */
export const DATABASE_SPAN = { 'db.system.name': 'postgresql' }

export async function sendAtOnce(client: pg.PoolClient, statements: BoundStatement[]): Promise<Row[][]> {
  const names = () => statements.map(({ statement }) => statement.name).join(', ')
  try {
    return await inClientSpan(
      names,
      DATABASE_SPAN,
      () =>
        new Promise<Row[][]>((resolve, reject) => {
          client.query(new TransactionAtOnce(statements, resolve, reject) as unknown as pg.Submittable)
        }),
    )
  } catch (error) {
    throw toFault(error)
  }
}
