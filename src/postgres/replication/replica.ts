/** One server of DATABASE_READ_URL: its connections, and the check before each read. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { DatabaseServer } from '../../config/database-url.ts'
import { FatalError } from '../../errors.ts'
import { DatabaseUnavailable, STATEMENT_TIMEOUT, sqlStateOf } from '../faults.ts'
import { Connector } from '../pool/connector.ts'
import { abandon } from '../pool/pg-internals.ts'
import { ConnectionPool, requireSessions, send, withLease } from '../pool/pool.ts'
import type { Claimant } from '../pool/turns.ts'
import { type Row, type Statement, statement } from '../statement.ts'

/** A position in a write-ahead log. Positions in different logs cannot be compared. */
export interface LogPosition {
  /** Database, system identifier and timeline. Each promotion of a standby begins another timeline. */
  log: string
  position: bigint
  takenAtMs: number
}

/** The same pools as on the primary, so that an account or a stream takes no more of a replica than of the primary. */
const CONNECTIONS = { clients: 5, streams: 4, console: 1 }
export type ReadKind = keyof typeof CONNECTIONS

/**
 * The check takes a millisecond. A replica that needs this long is stopped, or its packets are dropped. Requests wait up to 2 s for
 * a connection (turns.ts), so the primary still gets those that wait for this replica.
 */
export const RESPONSE_TIMEOUT_MS = 1_000
/** After a failure, only one read in this interval tries the replica. */
const RETRY_MS = 5_000
/** A replica that keeps up replays a position a few milliseconds after the primary had it. */
const REPLAY_MAX_MS = 200
const REPLAY_STEP_MS = 10

/** pg closes the connection after this time. */
const TIMEOUT = { query_timeout: RESPONSE_TIMEOUT_MS }

/**
 * All copies of a server have its system identifier, and no other server has. A standby that still follows a former primary stays
 * on the former timeline. PostgreSQL exposes only the timeline of a standby's last restartpoint.
 */
const selectLog: Statement = {
  ...statement('replica-log')`
    select concat_ws(' ', current_database(), (select system_identifier from pg_control_system()),
                     (select upper(lpad(to_hex(timeline_id), 8, '0')) from pg_control_checkpoint())) as log`,
  ...TIMEOUT,
}

/** Returns no row unless the server is a standby. A former primary, or a standby promoted by mistake, accepts writes. */
const selectReplayed: Statement = {
  ...statement('replica-position')`
    select pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint as position where pg_is_in_recovery()`,
  ...TIMEOUT,
}

export class Replica {
  readonly name: string
  readonly #pools: Record<ReadKind, ConnectionPool>
  readonly #clients = new Set<pg.Client>()
  readonly #logs = new WeakMap<pg.ClientBase, string>()
  /** Null before the first check. Rejects with a FatalError if a pooler does not keep sessions. */
  #sessions: Promise<void> | null = null
  #retryAtMs: number | null = null

  constructor(server: DatabaseServer, onConnectionLost: (error: Error) => void) {
    this.name = server.name
    const target = {
      ...new Connector(server.url).poolConfig(),
      connectionTimeoutMillis: RESPONSE_TIMEOUT_MS,
      Client: ReplicaClient,
      clients: this.#clients,
    }
    const pool = (name: ReadKind, isDivided = false) =>
      new ConnectionPool(
        target as unknown as pg.PoolConfig,
        { name, connections: CONNECTIONS[name], isDivided },
        onConnectionLost,
      )
    this.#pools = { clients: pool('clients', true), streams: pool('streams'), console: pool('console') }
  }

  /** Whether to read from the replica. After a failure, this is true once per RETRY_MS. */
  mayTry(): boolean {
    if (this.#retryAtMs === null) return true
    if (performance.now() < this.#retryAtMs) return false
    this.#retryAtMs = performance.now() + RETRY_MS
    return true
  }

  /** Returns null if the replica has not replayed the position within REPLAY_MAX_MS after the primary had it. */
  async read<R extends Row>(
    kind: ReadKind,
    claimant: Claimant | undefined,
    required: LogPosition,
    query: Statement,
    values: unknown[],
  ): Promise<R[] | null> {
    return this.#use(kind, claimant, required.log, async (client) => {
      for (;;) {
        // Pipelined behind the check on the same session, so the rows are at least as new as the position.
        const [behind, rows] = await Promise.all([
          behindBytes(client, required),
          send<R>(client, query, values),
        ])
        if (behind === 0) return rows
        if (performance.now() > required.takenAtMs + REPLAY_MAX_MS) return null
        await sleep(REPLAY_STEP_MS)
      }
    })
  }

  /** Bytes of WAL up to the position that the replica has not replayed. Throws if the replica cannot be read. */
  behindBytes(newest: LogPosition): Promise<number> {
    return this.#use('clients', undefined, newest.log, (client) => behindBytes(client, newest))
  }

  connectionStates(): Array<{ pool: string; total: number; idle: number; waiting: number }> {
    return Object.entries(this.#pools).map(([name, pool]) => ({
      pool: `replica-${name}`,
      ...pool.state(),
    }))
  }

  async close(): Promise<void> {
    await Promise.all(Object.values(this.#pools).map((pool) => pool.close()))
    // A server that hangs never closes its side, and an open socket would keep the process of a command running.
    for (const client of this.#clients) abandon(client)
  }

  async #use<T>(
    kind: ReadKind,
    claimant: Claimant | undefined,
    log: string,
    work: (client: pg.ClientBase) => Promise<T>,
  ): Promise<T> {
    try {
      await this.#requireSessions()
      const lease = () => this.#pools[kind].lease(claimant)
      const result = await withLease(lease, async ({ client }) => {
        await this.#requireLog(client, log)
        return work(client)
      })
      this.#retryAtMs = null
      return result
    } catch (error) {
      if (isOfServer(error)) this.#giveUp(error)
      throw error
    }
  }

  /** A session stays on its server, and a standby never leaves a timeline for another one of the same number. */
  async #requireLog(client: pg.ClientBase, log: string): Promise<void> {
    if (this.#logs.get(client) === log) return
    const [replica] = await send<{ log: string }>(client, selectLog)
    if (replica?.log !== log) throw notStandby()
    this.#logs.set(client, log)
  }

  /** Fails all reads on this replica, also those that wait for a turn, so that they go to another server. */
  #giveUp(error: Error): void {
    this.#retryAtMs = performance.now() + RETRY_MS
    for (const client of this.#clients) abandon(client, error)
  }

  /** The check and the read must reach the same session, and the session must have the settings of the service. */
  #requireSessions(): Promise<void> {
    this.#sessions ??= requireSessions(() => this.#pools.clients.lease()).catch((error) => {
      if (!(error instanceof FatalError)) this.#sessions = null
      throw error
    })
    return this.#sessions
  }
}

async function behindBytes(client: pg.ClientBase, { position }: LogPosition): Promise<number> {
  const [replayed] = await send<{ position: bigint | null }>(client, selectReplayed)
  if (replayed === undefined) throw notStandby()
  return Math.max(0, Number(position - (replayed.position ?? 0n)))
}

const notStandby = () => new DatabaseUnavailable(new Error('the server is not a standby of the primary'))

/** Whether other reads would fail too. A time limit and a conflict with replay (class 40) concern one statement. */
function isOfServer(error: unknown): error is Error {
  const state = sqlStateOf(error) ?? ''
  const isOfStatement = state === STATEMENT_TIMEOUT || state.startsWith('40')
  return error instanceof FatalError || (error instanceof DatabaseUnavailable && !isOfStatement)
}

/** Is in `clients` until it is closed, because pg.Pool does not list its clients. It passes its settings to their constructor. */
class ReplicaClient extends pg.Client {
  constructor(settings: pg.ClientConfig & { clients: Set<pg.Client> }) {
    super(settings)
    settings.clients.add(this)
    this.once('end', () => settings.clients.delete(this))
  }
}
