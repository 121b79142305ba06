/** What every query needs: a pool with limits, transactions, and errors told apart. Knows no product. */
import type { Socket } from 'node:net'
import pg from 'pg'
import Cursor from 'pg-cursor'
import { inClientSpan } from '../trace.ts'
import type { Connection } from './embedded/server.ts'
import { DatabaseUnavailable, endsSession, toFault } from './faults.ts'
import { DATABASE_SPAN, Lane, sendAtOnce } from './lane.ts'
import type { AtOnce, BoundStatement, Queryable, Row, Statement } from './statement.ts'

/**
 * Sessions per instance: enough to keep two cores busy. With the four of streams and the one of the maintenance, seven instances
 * fit PostgreSQL's default of 100.
 */
const POOL_SIZE = 8
/** How long a request waits for a session before it gives up. The platforms hang up after 2 s. */
const CONNECT_TIMEOUT_MS = 2_000
/** Of silence: less than the minutes after which proxies and address translators forget a connection. */
const KEEP_ALIVE_MS = 30_000
/** No statement of a request should take a hundredth of this. What was accepted must end before a shutdown does. */
const STATEMENT_TIMEOUT_MS = 5_000
/**
 * Rows that somebody else holds: beyond this the request is refused, so that it cannot stall all others. A delivery that
 * is innocent of it waits three times as long at worst, and LINE hangs up after 2 s.
 */
const LOCK_TIMEOUT_MS = 600
/** If the server is not even able to cancel the statement (network gone), the session is given up. */
const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 1_000

// int8 as bigint: ids exceed 2^53. timestamptz as the server's text: nobody computes with it, and parsing it to a Date
// costs a list 40 % of its throughput.
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    if (oid === pg.types.builtins.INT8) return (text: string) => BigInt(text)
    if (oid === pg.types.builtins.TIMESTAMPTZ) return (text: string) => text
    return pg.types.getTypeParser(oid, format)
  },
} as pg.CustomTypesConfig

export class Database implements Queryable, AtOnce {
  readonly #target: pg.ClientConfig
  readonly #pool: pg.Pool
  readonly #lanes: Lane[] = []
  #lookUps: AtOnce | null = null
  #ready = false

  /** @param target a postgres:// address or the embedded server; nothing is connected before the first query */
  constructor(target: string | Connection, onSessionLost: (error: Error) => void) {
    this.#target = {
      ...(typeof target === 'string' ? { connectionString: target } : target),
      types,
      application_name: `oa-audience, process ${process.pid}`,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    }
    this.#pool = new pg.Pool({
      ...this.#target,
      max: POOL_SIZE,
      pipeline: true,
      query_timeout: QUERY_TIMEOUT_MS,
    } as pg.PoolConfig)
    // Without listeners, a session that the server closes would end the process, be it idle or in use.
    this.#pool.on('error', onSessionLost)
    this.#pool.on('connect', (client) => client.on('error', () => undefined))
    // A session that cannot be set up must not be used: what it tells of times would be wrong.
    this.#pool.on('connect', (client) => {
      client.query(`${SESSION_SETTINGS}; ${REQUEST_LIMITS}`).catch(() => client.end())
    })
  }

  poolState(): { total: number; idle: number; waiting: number } {
    return { total: this.#pool.totalCount, idle: this.#pool.idleCount, waiting: this.#pool.waitingCount }
  }

  /** From now on queries are let through: the schema is the one that they are written for. */
  markReady(): void {
    this.#ready = true
  }

  async query<R extends Row>(statement: Statement | string, values: unknown[] = []): Promise<R[]> {
    return this.#withClient((client) => send<R>(client, statement, values))
  }

  /**
   * For what every request asks before anything else: queries that take microseconds, one behind the other on a session that
   * they share.
   */
  async lookUp<R extends Row>(statement: Statement, values: unknown[]): Promise<R[]> {
    this.#lookUps ??= this.lane()
    const [rows] = await this.#lookUps.transactionAtOnce([{ statement, values }])
    return rows as R[]
  }

  /** Commits what `work` did, or rolls all of it back and throws. */
  async transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T> {
    return this.#withClient(async (client) => {
      await send(client, 'begin')
      try {
        const result = await work({ query: (statement, values) => send(client, statement, values) })
        await send(client, 'commit')
        return result
      } catch (error) {
        await send(client, 'rollback').catch(() => undefined)
        throw error
      }
    })
  }

  async transactionAtOnce(statements: BoundStatement[]): Promise<Row[][]> {
    return this.#withClient((client) => sendAtOnce(client, statements))
  }

  /** Transactions one behind the other, on a session that stays checked out between them. */
  lane(): AtOnce {
    const lane = new Lane(() => this.#connect())
    this.#lanes.push(lane)
    return lane
  }

  /** Runs `work` on a session of its own, without time limits: migrations, and other work that is not a request. */
  async session<T>(work: (session: Queryable) => Promise<T>): Promise<T> {
    const client = new pg.Client(this.#target)
    client.on('error', () => undefined)
    try {
      await client.connect().catch((error) => {
        throw new DatabaseUnavailable(error)
      })
      await send(client, `${TEXT_SETTING}; ${NO_TIME_LIMITS}`)
      return await work({ query: (statement, values) => send(client, statement, values) })
    } finally {
      await client.end().catch(() => undefined)
    }
  }

  /**
   * A column of text in batches, all from one snapshot, on a session of its own that ends with the reading: finished,
   * given up, failed, or told to by the signal. One batch is read ahead of what is asked for.
   */
  async *readColumn(
    { statement: { text }, values }: BoundStatement,
    column: string,
    batchSize: number,
    signal: AbortSignal,
  ): AsyncGenerator<string[]> {
    if (!this.#ready) throw new DatabaseUnavailable(new Error('the schema is not ready yet'))
    const client = new pg.Client(this.#target)
    client.on('error', () => undefined)
    // Not in good order: PostgreSQL would first finish what it is at.
    const cut = () => (client as unknown as { connection: { stream: Socket } }).connection.stream.destroy()
    signal.addEventListener('abort', cut, { once: true })
    try {
      if (signal.aborted) return
      await client.connect()
      await client.query(`${SESSION_SETTINGS}; ${NO_TIME_LIMITS}`)
      const selected = `select ${column} from (${text}) found`
      const cursor = client.query(new Cursor<[string]>(selected, values, { rowMode: 'array' }))
      for (let next = cursor.read(batchSize); ; ) {
        const rows = await next
        if (rows.length === 0) return
        next = cursor.read(batchSize)
        next.catch(() => undefined)
        yield rows.map(([value]) => value)
      }
    } catch (error) {
      throw toFault(error)
    } finally {
      signal.removeEventListener('abort', cut)
      cut()
    }
  }

  async close(): Promise<void> {
    for (const lane of this.#lanes) lane.end()
    await this.#pool.end()
  }

  async #connect(): Promise<pg.PoolClient> {
    if (!this.#ready) throw new DatabaseUnavailable(new Error('the schema is not ready yet'))
    return this.#pool.connect().catch((error) => {
      throw new DatabaseUnavailable(error)
    })
  }

  async #withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#connect()
    let isLost = false
    try {
      return await work(client)
    } catch (error) {
      isLost = endsSession(error)
      throw error
    } finally {
      client.release(isLost)
    }
  }
}

/** A backslash in a text is one: the default of every PostgreSQL since 9.1, unless somebody turned it off. */
const TEXT_SETTING = 'set standard_conforming_strings = on'

/**
 * Statements are written so that one plan serves all values; planning each anew costs more than running it. Such a plan
 * may be made while a table is small and be kept while it grows by thousands of rows a second: it must use the indexes
 * from the beginning. None is large enough for parallel workers or compilation. Erasure and flushes rely on each
 * statement seeing what was committed before it, and answers on commits being on disk, whatever the database's defaults are.
 */
const SESSION_SETTINGS = `${TEXT_SETTING}; set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
  set max_parallel_workers_per_gather = 0; set jit = off; set timezone = 'UTC';
  set default_transaction_isolation = 'read committed';
  select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'`

/** By statements, for PgBouncer refuses such parameters where a session begins. */
const REQUEST_LIMITS = `set statement_timeout = ${STATEMENT_TIMEOUT_MS}; set lock_timeout = ${LOCK_TIMEOUT_MS};
  set idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}`

/** Whatever the role's or the database's defaults are. PostgreSQL before 17 knows not all of them. */
const NO_TIME_LIMITS = `select set_config(name, '0', false) from pg_settings where name in
  ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')`

async function send<R extends Row>(
  client: pg.ClientBase,
  statement: Statement | string,
  values: unknown[] = [],
): Promise<R[]> {
  const query = typeof statement === 'string' ? { text: statement, values } : { ...statement, values }
  const name = () => (typeof statement === 'string' ? 'statement' : statement.name)
  try {
    const { rows } = await inClientSpan(name, DATABASE_SPAN, () => client.query<R>(query))
    return rows
  } catch (error) {
    throw toFault(error)
  }
}
