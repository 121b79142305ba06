/** A Database on a PostgreSQL server, through pg. */
import pg from 'pg'
import { databaseQuery } from '../observability/facts.ts'
import { connectionSettings, STATEMENT_TIMEOUT_MS } from './connection-settings.ts'
import type { Database } from './database.ts'
import type { Connection } from './embedded/server.ts'
import { DatabaseUnavailable, endsConnection, toFault } from './faults.ts'
import { PinnedConnection } from './pinned-connection.ts'
import { sendPipeline } from './pipeline.ts'
import type { BoundStatement, Queryable, Row, Statement } from './statement.ts'

/**
 * Connections per instance: enough to keep two cores busy. With four streams and one maintenance session, seven instances fit
 * PostgreSQL's default of 100: 7 × (8 + 4 + 1) = 91.
 */
const POOL_SIZE = 8
/** Connections for streams per instance: one for each stream that may be open. They close after 10 s without use. */
const STREAM_POOL_SIZE = 4
/**
 * A session keeps the plans that it made while a table was empty, when all indexes cost the same, until PostgreSQL analyzes the
 * table. New sessions plan again, also where autovacuum is off or late.
 */
const CONNECTION_MAX_SECONDS = 300
/** How long a request waits for a connection. The platforms disconnect after 2 s. */
const CONNECT_TIMEOUT_MS = 2_000
/** Of silence: less than the minutes after which proxies and address translators drop a connection. */
const KEEP_ALIVE_MS = 30_000
/** If the server cannot even cancel the statement (network gone), the connection is given up. */
const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 1_000

// int8 becomes bigint: ids exceed 2^53. timestamptz stays text: nothing computes with it, and parsing it to a Date costs a
// list 40 % of its throughput.
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    if (oid === pg.types.builtins.INT8) return (text: string) => BigInt(text)
    if (oid === pg.types.builtins.TIMESTAMPTZ) return (text: string) => text
    return pg.types.getTypeParser(oid, format)
  },
} as pg.CustomTypesConfig

export class PostgresDatabase implements Database {
  readonly kind = 'postgres'
  readonly #target: pg.ClientConfig
  readonly #pool: pg.Pool
  readonly #streamPool: pg.Pool
  readonly #pinned: PinnedConnection[] = []
  readonly #lookups = this.pin()
  #isReady = false

  /**
   * @param target a postgres:// address or the embedded server; nothing connects before the first query
   * @param onConnectionLost called when the server closes an idle connection
   */
  constructor(target: string | Connection, onConnectionLost: (error: Error) => void) {
    this.#target = {
      ...(typeof target === 'string' ? { connectionString: target } : target),
      types,
      application_name: `oa-audience, process ${process.pid}`,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    }
    this.#pool = this.#openPool(POOL_SIZE, onConnectionLost)
    this.#streamPool = this.#openPool(STREAM_POOL_SIZE, onConnectionLost)
  }

  requireConfigured(): void {}

  poolState(): { total: number; idle: number; waiting: number } {
    return { total: this.#pool.totalCount, idle: this.#pool.idleCount, waiting: this.#pool.waitingCount }
  }

  /** Lets queries through: from now on the schema is the one that they are written for. */
  markReady(): void {
    this.#isReady = true
  }

  async query<R extends Row>(statement: Statement | string, values: unknown[] = []): Promise<R[]> {
    return this.#withClient((client) => send<R>(client, statement, values))
  }

  readonly streams: Queryable = {
    query: (statement, values) =>
      this.#withClient((client) => send(client, statement, values), this.#streamPool),
  }

  async lookup<R extends Row>(statement: Statement, values: unknown[]): Promise<R[]> {
    const [rows] = await this.#lookups.pipelineIdempotent([{ statement, values }])
    return rows as R[]
  }

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

  readonly pipeline = (statements: BoundStatement[]): Promise<Row[][]> =>
    this.#withClient((client) => sendPipeline(client, statements))

  pin(): PinnedConnection {
    const pinned = new PinnedConnection(() => this.#connect())
    this.#pinned.push(pinned)
    return pinned
  }

  async session<T>(work: (session: Queryable) => Promise<T>): Promise<T> {
    const client = new pg.Client(this.#target)
    client.on('error', () => undefined)
    try {
      await connect(client)
      return await work({ query: (statement, values) => send(client, statement, values) })
    } finally {
      await client.end().catch(() => undefined)
    }
  }

  async close(): Promise<void> {
    for (const pinned of this.#pinned) pinned.release()
    await Promise.all([this.#pool.end(), this.#streamPool.end()])
  }

  #openPool(max: number, onConnectionLost: (error: Error) => void): pg.Pool {
    const pool = new pg.Pool({
      ...this.#target,
      max,
      maxLifetimeSeconds: CONNECTION_MAX_SECONDS,
      pipeline: true,
      query_timeout: QUERY_TIMEOUT_MS,
    } as pg.PoolConfig)
    // Without listeners, a connection that the server closes would end the process, whether idle or in use.
    pool.on('error', onConnectionLost)
    pool.on('connect', (client) => {
      client.on('error', () => undefined)
      // A connection that cannot be set up must not be used: its times would be wrong.
      client.query(connectionSettings('request')).catch(() => client.end())
    })
    return pool
  }

  #requireReady(): void {
    if (!this.#isReady) throw new DatabaseUnavailable(new Error('the schema is not ready yet'))
  }

  async #connect(pool = this.#pool): Promise<pg.PoolClient> {
    this.#requireReady()
    return pool.connect().catch((error) => {
      throw new DatabaseUnavailable(error)
    })
  }

  async #withClient<T>(work: (client: pg.PoolClient) => Promise<T>, pool = this.#pool): Promise<T> {
    const client = await this.#connect(pool)
    let isLost = false
    try {
      return await work(client)
    } catch (error) {
      isLost = endsConnection(error)
      throw error
    } finally {
      client.release(isLost)
    }
  }
}

async function connect(client: pg.Client): Promise<void> {
  await client.connect().catch((error) => {
    throw new DatabaseUnavailable(error)
  })
  await send(client, connectionSettings('session'))
}

async function send<R extends Row>(
  client: pg.ClientBase,
  statement: Statement | string,
  values: unknown[] = [],
): Promise<R[]> {
  const query = typeof statement === 'string' ? { text: statement, values } : { ...statement, values }
  const name = typeof statement === 'string' ? 'statement' : statement.name
  try {
    const { rows } = await databaseQuery.run({ statements: [name] }, () => client.query<R>(query))
    return rows
  } catch (error) {
    throw toFault(error)
  }
}
