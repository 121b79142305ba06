/** Connection pools, one for each kind of work. */
import pg from 'pg'
import type { SecretKeys } from '../../config/secret-keys.ts'
import { FatalError } from '../../errors.ts'
import { statementsSent } from '../../observability/facts.ts'
import { DatabaseUnavailable, endsConnection, toFault } from '../faults.ts'
import {
  type BoundStatement,
  begin,
  commit,
  type Queryable,
  type Row,
  rollback,
  type Statement,
  type Transactions,
  unnamed,
} from '../statement.ts'
import {
  listenTo,
  PREPARE_WRITES,
  processIdOf,
  REQUEST_SETTINGS,
  STATEMENT_TIMEOUT_MS,
} from './connection-settings.ts'
import { type Claimant, Turns } from './turns.ts'

/** The connection is closed if the server cannot even cancel the statement, as when the network is down. */
const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 1_000

/** A session keeps the plans that it made while a table was empty, until PostgreSQL analyzes the table. New sessions plan again. */
const CONNECTION_MAX_SECONDS = 300

export interface Lease {
  client: pg.ClientBase
  /** @param isLost closes the connection instead of keeping it for the next turn */
  release: (isLost: boolean) => void
}

const OWN_WORK: Claimant = { accountId: null, organizationId: null }

export class ConnectionPool {
  readonly #pool: pg.Pool
  readonly #turns: Turns

  constructor(
    target: pg.PoolConfig,
    { name, connections, isDivided = false }: { name: string; connections: number; isDivided?: boolean },
    onConnectionLost: (error: Error) => void,
  ) {
    this.#turns = new Turns(name, connections, isDivided)
    this.#pool = new pg.Pool({
      ...target,
      max: connections,
      maxLifetimeSeconds: CONNECTION_MAX_SECONDS,
      pipeline: true,
      query_timeout: QUERY_TIMEOUT_MS,
      // A connection whose setup fails must not be used, because its times could be wrong or an id could be given twice.
      onConnect: async (client: pg.ClientBase) => {
        listenTo(client)
        await target.onConnect?.(client)
        await client.query(`${REQUEST_SETTINGS}; ${PREPARE_WRITES}`)
      },
    } as unknown as pg.PoolConfig)
    // Without listeners, a connection that the server closes would end the process.
    this.#pool.on('error', onConnectionLost)
  }

  /** Waits for a turn, which has a connection of the pg.Pool. Throws DatabaseBusy or DatabaseUnavailable. */
  async lease(claimant: Claimant = OWN_WORK): Promise<Lease> {
    const endTurn = await this.#turns.take(claimant)
    try {
      const client = await this.#pool.connect()
      const release = (isLost: boolean) => {
        client.release(isLost)
        endTurn()
      }
      return { client, release }
    } catch (error) {
      endTurn()
      throw new DatabaseUnavailable(error)
    }
  }

  state(): { total: number; idle: number; waiting: number } {
    return { total: this.#pool.totalCount, idle: this.#pool.idleCount, waiting: this.#turns.waitingCount }
  }

  close(): Promise<void> {
    return this.#pool.end()
  }
}

export function transactionsOn(lease: () => Promise<Lease>, secretKeys: SecretKeys): Transactions {
  return {
    secretKeys,
    query: (statement, values) => withLease(lease, ({ client }) => send(client, statement, values)),
    pipeline: (statements) => withLease(lease, ({ client }) => sendTransaction(client, statements)),
    transaction: (work) => withLease(lease, ({ client }) => runTransaction(client, secretKeys, work)),
  }
}

export async function withLease<T>(
  lease: () => Promise<Lease>,
  work: (leased: Lease) => Promise<T>,
): Promise<T> {
  const leased = await lease()
  let isLost = false
  try {
    return await work(leased)
  } catch (error) {
    isLost = endsConnection(error)
    throw error
  } finally {
    leased.release(isLost)
  }
}

/** `begin` is sent with the first statement. After a failed statement, `commit` acts as a rollback. */
async function runTransaction<T>(
  client: pg.ClientBase,
  secretKeys: SecretKeys,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  let failure: unknown = null
  const query: Queryable['query'] = (statement, values) => {
    const sent = send<never>(client, statement, values)
    sent.catch((error) => {
      failure ??= error
    })
    return sent
  }
  void query(begin)
  try {
    const result = await work({ secretKeys, query })
    await send(client, commit)
    if (failure !== null) throw failure
    return result
  } catch (error) {
    await send(client, rollback).catch(() => undefined)
    throw error
  }
}

export async function send<R extends Row>(
  client: pg.ClientBase,
  statement: Statement,
  values: unknown[] = [],
): Promise<R[]> {
  const query = { ...statement, values }
  try {
    statementsSent.publish({ statements: [statement.name || 'unnamed'] })
    const { rows } = await client.query<R>(query)
    return rows
  } catch (error) {
    throw toFault(error)
  }
}

/** pg sends all statements before the first response. A single statement is a transaction by itself. */
export async function sendTransaction(client: pg.ClientBase, statements: BoundStatement[]): Promise<Row[][]> {
  const queries = statements.map(({ statement, values }) => ({ ...statement, values }))
  const sent = queries.length === 1 ? queries : [begin, ...queries, commit]
  statementsSent.publish({ statements: statements.map(({ statement }) => statement.name) })
  // All settle before the connection is used again. The `commit` behind a failed statement acts as a rollback.
  const results = rowsOfAll(await Promise.allSettled(sent.map((query) => client.query<Row>(query))))
  return queries.length === 1 ? results : results.slice(1, -1)
}

function rowsOfAll(results: Array<PromiseSettledResult<pg.QueryResult<Row>>>): Row[][] {
  return results.map((result) => {
    if (result.status === 'rejected') throw toFault(result.reason)
    return result.value.rows
  })
}

/** If other clients use the pooler too, a connection may get the same session several times by chance. */
const ROUNDS = 5

/**
 * Settings, prepared statements and advisory locks belong to a session. PgBouncer keeps a session for a connection only if
 * `pool_mode` is `session`. Otherwise requests fail at random, so this throws a FatalError.
 *
 * PostgreSQL sends each connection the id of the process that serves it, and a pooler sends an id that does not exist. Then two
 * connections run statements alternately: in transaction mode, one of them gets the process of the other.
 */
export async function requireSessions(lease: () => Promise<Lease>): Promise<void> {
  await withLease(lease, async ({ client: one }) => {
    const first = await processOf(one)
    if (first === processIdOf(one)) return
    await withLease(lease, async ({ client: two }) => {
      const second = await processOf(two)
      if (first === second) throw poolerWithoutSessions()
      for (let round = 0; round < ROUNDS; round += 1) {
        await send(two, begin)
        const isSame = (await processOf(two)) === second && (await processOf(one)) === first
        await send(two, commit)
        if (!isSame) throw poolerWithoutSessions()
      }
    })
  })
}

const selectProcess = unnamed('select pg_backend_pid() as process')

async function processOf(client: pg.ClientBase): Promise<number | undefined> {
  const [row] = await send<{ process: number }>(client, selectProcess)
  return row?.process
}

function poolerWithoutSessions(): FatalError {
  return new FatalError(
    'DATABASE_URL points to a connection pooler that does not keep sessions. Set pool_mode = session in PgBouncer, or connect to PostgreSQL directly.',
  )
}
