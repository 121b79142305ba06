/** Reads that a replica may serve (DATABASE_READ_URL). If no replica can, the primary does. */
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { DatabaseServer } from '../../config/database-url.ts'
import { FatalError } from '../../errors.ts'
import { type ReadOutcome, readServed } from '../../observability/facts.ts'
import { DatabaseUnavailable, STATEMENT_TIMEOUT, sqlStateOf } from '../faults.ts'
import { Connector } from '../pool/connector.ts'
import { ConnectionPool, requireSessions, send, withLease } from '../pool/pool.ts'
import type { Claimant } from '../pool/turns.ts'
import { type Queryable, type Row, type Statement, statement } from '../statement.ts'

/** A result includes every commit that was acknowledged READ_MAX_LAG_MS ago or before `sinceMs` (`performance.now()`). */
export interface Reads {
  /** Pages whose client accepts older data use it. */
  forTenant(tenant: Claimant, sinceMs: number): Queryable
  /** The statements of one stream use it. Results include every commit before this call. */
  streams(): Queryable
  console(sinceMs?: number): Queryable
}

export interface ReplicaServers {
  servers: DatabaseServer[]
  maxLagMs: number
}

/** Between two reads of the primary's position for pages: a quarter of the smallest age that a client can accept. */
const POSITION_INTERVAL_MS = 250

/** The flush position: an acknowledged commit has been flushed. The name of a WAL file begins with the timeline. */
const selectPrimaryPosition = statement('primary-position')`
    select concat_ws(' ', current_database(), (select system_identifier from pg_control_system()),
                     left(pg_walfile_name(pg_current_wal_flush_lsn()), 8)) as log,
           pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint as position`

/** A position in a write-ahead log. Positions in different logs cannot be compared. */
interface LogPosition {
  /** Database, system identifier and timeline. */
  log: string
  position: bigint
  takenAtMs: number
}

/** The age of a result does not depend on clocks. A replica must have replayed the position that the primary had at that time. */
export class ReplicaReads implements Reads {
  readonly #replicas: Replica[]
  readonly #maxLagMs: number
  readonly #primary: Reads
  /** for its position */
  readonly #lookups: Queryable
  /** Positions of the primary in the last maxLagMs, oldest first. */
  #positions: LogPosition[] = []
  #turn = 0

  constructor(
    { servers, maxLagMs }: ReplicaServers,
    primary: Reads,
    lookups: Queryable,
    onConnectionLost: (error: Error) => void,
  ) {
    this.#replicas = servers.map((server) => new Replica(server, onConnectionLost))
    this.#maxLagMs = maxLagMs
    this.#primary = primary
    this.#lookups = lookups
  }

  forTenant(tenant: Claimant, sinceMs: number): Queryable {
    return this.#on('clients', sinceMs, this.#primary.forTenant(tenant, sinceMs), tenant)
  }

  streams(): Queryable {
    return this.#on('streams', performance.now(), this.#primary.streams())
  }

  console(sinceMs = 0): Queryable {
    return this.#on('console', sinceMs, this.#primary.console())
  }

  /** Bytes of WAL up to the primary's position that each replica has not replayed. Null if the replica cannot be read. */
  async lags(): Promise<Array<{ replica: string; behindBytes: number | null }>> {
    const newest = await this.#readPosition().catch(() => null)
    const lagOf = (replica: Replica) => newest && replica.behindBytes(newest).catch(() => null)
    return Promise.all(
      this.#replicas.map(async (replica) => ({ replica: replica.name, behindBytes: await lagOf(replica) })),
    )
  }

  connectionStates(): Array<{ pool: string; total: number; idle: number; waiting: number }> {
    return this.#replicas.flatMap((replica) => replica.connectionStates())
  }

  async close(): Promise<void> {
    await Promise.all(this.#replicas.map((replica) => replica.close()))
  }

  #on(kind: ReadKind, sinceMs: number, primary: Queryable, claimant?: Claimant): Queryable {
    return {
      secretKeys: primary.secretKeys,
      query: async <R extends Row>(statement: Statement, values: unknown[] = []) => {
        const required = await this.#positionSince(sinceMs)
        let outcome: ReadOutcome = 'unavailable'
        this.#turn += 1
        for (let no = 0; no < this.#replicas.length; no += 1) {
          const replica = this.#replicas[(this.#turn + no) % this.#replicas.length] as Replica
          if (!replica.mayTry()) continue
          try {
            const rows = await replica.read<R>(kind, claimant, required, statement, values)
            if (rows !== null) {
              readServed.publish({ outcome: 'replica' })
              return rows
            }
            outcome = 'behind'
          } catch (error) {
            // A statement that takes too long would fail on the primary too. The replica may lack a migration, or be busy.
            if (sqlStateOf(error) === STATEMENT_TIMEOUT) throw error
          }
        }
        readServed.publish({ outcome })
        return primary.query<R>(statement, values)
      },
    }
  }

  /** The oldest stored position that includes every commit before the time, or else the current one. */
  async #positionSince(sinceMs: number): Promise<LogPosition> {
    const nowMs = performance.now()
    const oldestMs = Math.max(sinceMs, nowMs - this.#maxLagMs)
    const newest = this.#positions.at(-1)
    if (newest === undefined || newest.takenAtMs < nowMs - POSITION_INTERVAL_MS) await this.#readPosition()
    return this.#positions.find(({ takenAtMs }) => takenAtMs >= oldestMs) ?? this.#readPosition()
  }

  /** A takeover begins another log, whose positions cannot be compared with those stored before. */
  async #readPosition(): Promise<LogPosition> {
    // Taken before the query is sent, because the position includes every commit until then.
    const takenAtMs = performance.now()
    const [row] = await this.#lookups.query<Row & Omit<LogPosition, 'takenAtMs'>>(selectPrimaryPosition)
    if (row === undefined) throw new Error('the primary returned no position')
    const present = { ...row, takenAtMs }
    const sinceMs = takenAtMs - this.#maxLagMs
    const comparable = this.#positions.filter((one) => one.log === row.log && one.takenAtMs >= sinceMs)
    this.#positions = [...comparable, present]
    return present
  }
}

/** The primary has the same numbers. */
const CONNECTIONS = { clients: 5, streams: 4, console: 1 }
type ReadKind = keyof typeof CONNECTIONS

/** The check takes a millisecond. */
const RESPONSE_TIMEOUT_MS = 1_000
/** After a failure, only one read in this interval tries the replica. */
const RETRY_MS = 5_000
/** A replica that keeps up needs a few milliseconds. */
const REPLAY_MAX_MS = 200
const REPLAY_STEP_MS = 10

/**
 * Returns no row unless the server is a standby. One that follows a former primary stays on the former timeline. PostgreSQL exposes only
 * the timeline of the last restartpoint. pg closes the connection after the time limit.
 */
const selectReplayed = {
  ...statement('replica-position')`
    select concat_ws(' ', current_database(), (select system_identifier from pg_control_system()),
                     (select upper(lpad(to_hex(timeline_id), 8, '0')) from pg_control_checkpoint())) as log,
           pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint as position
     where pg_is_in_recovery()`,
  query_timeout: RESPONSE_TIMEOUT_MS,
}

/** One server of DATABASE_READ_URL. */
class Replica {
  readonly name: string
  readonly #pools: Record<ReadKind, ConnectionPool>
  #sessions: Promise<void> | null = null
  #retryAtMs: number | null = null

  constructor(server: DatabaseServer, onConnectionLost: (error: Error) => void) {
    this.name = server.name
    const target = {
      ...new Connector(server).poolConfig(),
      connectionTimeoutMillis: RESPONSE_TIMEOUT_MS,
      // A server that hangs never closes its side, and an open socket would keep the process of a command running.
      allowExitOnIdle: true,
    }
    const pool = (name: ReadKind, isDivided = false) =>
      new ConnectionPool(target, { name, connections: CONNECTIONS[name], isDivided }, onConnectionLost)
    this.#pools = { clients: pool('clients', true), streams: pool('streams'), console: pool('console') }
  }

  /** After a failure, true once per RETRY_MS. */
  mayTry(): boolean {
    if (this.#retryAtMs === null) return true
    if (performance.now() < this.#retryAtMs) return false
    this.#retryAtMs = performance.now() + RETRY_MS
    return true
  }

  /** Returns null if the replica has not replayed the position within REPLAY_MAX_MS after the primary had it. */
  read<R extends Row>(
    kind: ReadKind,
    claimant: Claimant | undefined,
    required: LogPosition,
    query: Statement,
    values: unknown[],
  ): Promise<R[] | null> {
    return this.#use(kind, claimant, async (client) => {
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

  behindBytes(newest: LogPosition): Promise<number> {
    return this.#use('clients', undefined, (client) => behindBytes(client, newest))
  }

  connectionStates(): Array<{ pool: string; total: number; idle: number; waiting: number }> {
    return Object.entries(this.#pools).map(([name, pool]) => ({ pool: `replica-${name}`, ...pool.state() }))
  }

  async close(): Promise<void> {
    await Promise.all(Object.values(this.#pools).map((pool) => pool.close()))
  }

  async #use<T>(
    kind: ReadKind,
    claimant: Claimant | undefined,
    work: (client: pg.ClientBase) => Promise<T>,
  ): Promise<T> {
    try {
      await this.#requireSessions()
      const lease = () => this.#pools[kind].lease(claimant)
      const result = await withLease(lease, ({ client }) => work(client))
      this.#retryAtMs = null
      return result
    } catch (error) {
      if (isOfServer(error)) this.#retryAtMs = performance.now() + RETRY_MS
      throw error
    }
  }

  /** The check and the read must reach the same session, and the session must have the settings of the service. */
  #requireSessions(): Promise<void> {
    this.#sessions ??= requireSessions(() => this.#pools.clients.lease()).catch((error) => {
      this.#sessions = null
      throw error
    })
    return this.#sessions
  }
}

async function behindBytes(client: pg.ClientBase, { log, position }: LogPosition): Promise<number> {
  const [replayed] = await send<{ log: string; position: bigint | null }>(client, selectReplayed)
  if (replayed?.log !== log)
    throw new DatabaseUnavailable(new Error('the server is not a standby of the primary'))
  return Math.max(0, Number(position - (replayed.position ?? 0n)))
}

/** Whether other reads would fail too. A time limit and a conflict with replay (class 40) concern one statement. */
function isOfServer(error: unknown): boolean {
  const state = sqlStateOf(error) ?? ''
  const isOfStatement = state === STATEMENT_TIMEOUT || state.startsWith('40')
  return error instanceof FatalError || (error instanceof DatabaseUnavailable && !isOfStatement)
}
