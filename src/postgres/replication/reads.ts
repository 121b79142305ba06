/** Reads that a replica may serve (DATABASE_READ_URL). If no replica can, the primary does. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { DatabaseServer } from '../../config/database-url.ts'
import { type ReadOutcome, readServed } from '../../observability/facts.ts'
import { DatabaseBusy, STATEMENT_TIMEOUT, sqlStateOf } from '../faults.ts'
import type { Claimant } from '../pool/turns.ts'
import { type Queryable, type Row, type Statement, statement } from '../statement.ts'
import { type LogPosition, RESPONSE_TIMEOUT_MS, type ReadKind, Replica } from './replica.ts'

/**
 * Each result includes every commit that was acknowledged READ_MAX_LAG_MS ago. A caller can require all commits before `sinceMs`
 * (`performance.now()`) as well.
 */
export interface Reads {
  /** For pages whose client accepts older data. A query throws DatabaseBusy if it waits too long for a connection. */
  forTenant(tenant: Claimant, sinceMs: number): Queryable
  /** For the statements of one stream. Results include every commit before this call. */
  streams(): Queryable
  console(sinceMs?: number): Queryable
}

export interface ReplicaServers {
  servers: DatabaseServer[]
  /** A replica that has not replayed a commit of this age is not read. */
  maxLagMs: number
}

export type QueryPrimary = <R extends Row>(statement: Statement) => Promise<R[]>

/** Minimum time between two reads of the primary's position for pages: a quarter of the smallest age that a client can accept. */
const POSITION_INTERVAL_MS = 250

/**
 * Reads the flush position: an acknowledged commit has been flushed, and positions behind it may wait for the next commit. The
 * name of a WAL file begins with the timeline in 8 hexadecimal digits.
 */
const selectPrimaryPosition = statement('primary-position')`
    select concat_ws(' ', current_database(), (select system_identifier from pg_control_system()),
                     left(pg_walfile_name(pg_current_wal_flush_lsn()), 8)) as log,
           pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint as position`

/** The age of a result does not depend on clocks. A replica must have replayed the position that the primary had at that time. */
export class ReplicaReads implements Reads {
  readonly #replicas: Replica[]
  readonly #maxLagMs: number
  readonly #primary: Reads
  readonly #queryPrimary: QueryPrimary
  /** Positions of the primary in the last maxLagMs, oldest first. */
  #positions: LogPosition[] = []
  #turn = 0

  constructor(
    { servers, maxLagMs }: ReplicaServers,
    primary: Reads,
    queryPrimary: QueryPrimary,
    onConnectionLost: (error: Error) => void,
  ) {
    this.#replicas = servers.map((server) => new Replica(server, onConnectionLost))
    this.#maxLagMs = maxLagMs
    this.#primary = primary
    this.#queryPrimary = queryPrimary
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
    const late = sleep(RESPONSE_TIMEOUT_MS, null, { ref: false })
    const newest = await Promise.race([this.#readPosition(), late]).catch(() => null)
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
          const read = replica.read<R>(kind, claimant, required, statement, values)
          const rows = await read.catch(requireReplicaFault)
          if (rows) {
            readServed.publish({ outcome: 'replica' })
            return rows
          }
          if (rows === null) outcome = 'behind'
        }
        readServed.publish({ outcome })
        return primary.query<R>(statement, values)
      },
    }
  }

  /** Returns the oldest stored position that includes every commit before the time, or else reads the current one. */
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
    const [row] = await this.#queryPrimary<Row & Omit<LogPosition, 'takenAtMs'>>(selectPrimaryPosition)
    if (row === undefined) throw new Error('the primary returned no position')
    const present = { ...row, takenAtMs }
    const sinceMs = takenAtMs - this.#maxLagMs
    const comparable = this.#positions.filter((one) => one.log === row.log && one.takenAtMs >= sinceMs)
    this.#positions = [...comparable, present]
    return present
  }
}

/**
 * Throws errors that the primary would also return: a statement that takes too long, or a client that waits for its own statements.
 * Any other error may be a fault of the replica, such as a conflict with replay or a migration that it has not replayed.
 */
function requireReplicaFault(error: unknown): void {
  if (error instanceof DatabaseBusy || sqlStateOf(error) === STATEMENT_TIMEOUT) throw error
}
