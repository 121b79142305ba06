import { setTimeout as sleep } from 'node:timers/promises'
import { SecretKeys } from '../../config/secret-keys.ts'
import type { Database, DatabaseState } from '../database.ts'
import type { Connection } from '../embedded/server.ts'
import { DatabaseUnavailable, preventsStoring } from '../faults.ts'
import { type Reads, ReplicaReads, type ReplicaServers } from '../replication/reads.ts'
import { type Replication, type ReplicationState, readReplication } from '../replication/replication.ts'
import {
  type Queryable,
  type Row,
  type SendPipeline,
  type Statement,
  statement,
  type Transactions,
} from '../statement.ts'
import { Connector } from './connector.ts'
import { PinnedConnection } from './pinned-connection.ts'
import { ConnectionPool, type Lease, requireSessions, send, transactionsOn } from './pool.ts'
import type { Claimant } from './turns.ts'

/**
 * Connections per instance. No kind of work can take the connections of another.
 *
 * - `health`: one probe at a time, which all callers share.
 * - `lookups`: one for callers and one for accounts, each pipelined.
 * - `intake`: for batches that are split.
 * - `clients`: reads and writes of clients and the service's own work. One organization leaves at least one to all others.
 * - `streams`: one for each stream that may be open.
 * - `console`: one for all pages, so that an operator's search delays only other operators.
 *
 * Four pinned connections are for flushes and one is for endpoints, so an instance without a console has
 * 1 + 2 + 2 + 5 + 4 + 4 + 1 = 19. One instance at a time uses a connection for maintenance. Five instances, one of which serves the
 * console, fit PostgreSQL's default of 100, of which superusers keep 3: 5 × 19 + 1 + 1 = 97. If DATABASE_URL has several hosts, each
 * instance has one more connection to each host. reads.ts has the connections to replicas.
 */
const CONNECTIONS = { health: 1, lookups: 2, intake: 2, clients: 5, streams: 4, console: 1 }
/** Orchestrators wait 1 to 2 s for a health check, so a slower database counts as down. */
const STATE_TIMEOUT_MS = 1_500

export class PostgresDatabase implements Database {
  readonly secretKeys: SecretKeys
  readonly #connector: Connector
  readonly #pools: Record<keyof typeof CONNECTIONS, ConnectionPool>
  readonly #createPool: (name: string, connections: number, isDivided?: boolean) => ConnectionPool
  readonly #pinnedPools: ConnectionPool[] = []
  readonly #pinned: PinnedConnection[] = []
  readonly #ownWork: Transactions
  readonly callers: Queryable
  readonly accounts: Queryable
  readonly intake: Transactions
  readonly console: Transactions
  readonly reads: Reads
  readonly #replicaReads: ReplicaReads | null
  #probe: Promise<'up' | 'read-only'> | null = null
  #isFailing = false
  #isReady = false
  #replication: Replication | null = null

  /**
   * Nothing connects before the first query.
   * @param target a postgres:// address or the embedded server
   * @param onConnectionLost called when the server closes an idle connection
   */
  constructor(
    target: string | Connection,
    onConnectionLost: (error: Error) => void,
    replicas: ReplicaServers | null = null,
    secretKeys = SecretKeys.NONE,
  ) {
    this.secretKeys = secretKeys
    this.#connector = new Connector(target)
    this.#createPool = (name, connections, isDivided = false) =>
      new ConnectionPool(this.#connector.poolConfig(), { name, connections, isDivided }, onConnectionLost)
    const pools = Object.entries(CONNECTIONS).map(([name, connections]) => [
      name,
      this.#createPool(name, connections, name === 'clients'),
    ])
    this.#pools = Object.fromEntries(pools) as Record<keyof typeof CONNECTIONS, ConnectionPool>
    this.callers = this.#lookups()
    this.accounts = this.#lookups()
    this.#ownWork = transactionsOn(() => this.#lease(this.#pools.clients), secretKeys)
    this.intake = transactionsOn(() => this.#lease(this.#pools.intake), secretKeys)
    this.console = transactionsOn(() => this.#lease(this.#pools.console), secretKeys)
    const streams = transactionsOn(() => this.#lease(this.#pools.streams), secretKeys)
    const primary: Reads = {
      forTenant: (tenant) => this.forTenant(tenant),
      streams: () => streams,
      console: () => this.console,
    }
    this.#replicaReads = replicas && new ReplicaReads(replicas, primary, this.callers, onConnectionLost)
    this.reads = this.#replicaReads ?? primary
  }

  requireConfigured(): void {}

  connectionStates(): Array<{ pool: string; total: number; idle: number; waiting: number }> {
    const pinned = this.#pinnedPools.map((pool) => pool.state())
    const sum = (field: 'total' | 'idle' | 'waiting') => pinned.reduce((all, state) => all + state[field], 0)
    return [
      ...Object.entries(this.#pools).map(([name, pool]) => ({ pool: name, ...pool.state() })),
      { pool: 'pinned', total: sum('total'), idle: sum('idle'), waiting: sum('waiting') },
      ...(this.#replicaReads?.connectionStates() ?? []),
    ]
  }

  async replicaLags(): Promise<Array<{ replica: string; behindBytes: number | null }>> {
    return this.#replicaReads?.lags() ?? []
  }

  markReady(): void {
    this.#isReady = true
  }

  async state(): Promise<DatabaseState> {
    // All callers share one probe, so that they never wait for each other.
    this.#probe ??= this.#probeState().finally(() => {
      this.#probe = null
    })
    const late = sleep(STATE_TIMEOUT_MS, 'down' as const, { ref: false })
    const state = await Promise.race([this.#probe, late]).catch(() => 'down' as const)
    return state === 'up' && this.#isFailing ? 'failing' : state
  }

  noteDelivery(error: unknown): void {
    if (error === null) this.#isFailing = false
    else if (preventsStoring(error)) this.#isFailing = true
  }

  get replication(): ReplicationState | null {
    return this.#replication?.state ?? null
  }

  async checkReplication(): Promise<Replication | null> {
    this.#replication = await readReplication(this, this.#connector.hasSeveralHosts)
    return this.#replication
  }

  forTenant(tenant: Claimant): Transactions {
    return transactionsOn(() => this.#lease(this.#pools.clients, tenant), this.secretKeys)
  }

  query<R extends Row>(statement: Statement, values?: unknown[]): Promise<R[]> {
    return this.#ownWork.query<R>(statement, values)
  }

  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T> {
    return this.#ownWork.transaction(work)
  }

  readonly pipeline: SendPipeline = (statements) => this.#ownWork.pipeline(statements)

  pin(): PinnedConnection {
    const pool = this.#createPool('pinned', 1)
    this.#pinnedPools.push(pool)
    return this.#pinOn(pool)
  }

  async requireSessions(): Promise<void> {
    await this.#connector.locate()
    await requireSessions(() => this.#pools.clients.lease())
  }

  async session<T>(work: (session: Queryable) => Promise<T>): Promise<T> {
    const client = await this.#connector.openSession()
    try {
      return await work({
        secretKeys: this.secretKeys,
        query: (statement, values) => send(client, statement, values),
      })
    } finally {
      await client.end().catch(() => undefined)
    }
  }

  async close(): Promise<void> {
    await this.#replicaReads?.close()
    for (const pinned of this.#pinned) pinned.release()
    const pools = [...Object.values(this.#pools), ...this.#pinnedPools]
    await Promise.all(pools.map((pool) => pool.close()))
    this.#connector.close()
  }

  #requireReady(): void {
    if (!this.#isReady) throw new DatabaseUnavailable(new Error('the schema is not ready yet'))
  }

  async #lease(pool: ConnectionPool, claimant?: Claimant): Promise<Lease> {
    this.#requireReady()
    await this.#connector.locate()
    return pool.lease(claimant)
  }

  #pinOn(pool: ConnectionPool): PinnedConnection {
    const pinned = new PinnedConnection(() => this.#lease(pool))
    this.#pinned.push(pinned)
    return pinned
  }

  #lookups(): Queryable {
    const pinned = this.#pinOn(this.#pools.lookups)
    const query = async <R extends Row>(statement: Statement, values: unknown[] = []) => {
      const [rows] = await pinned.pipelineIdempotent([{ statement, values }])
      return rows as R[]
    }
    return { secretKeys: this.secretKeys, query }
  }

  async #probeState(): Promise<'up' | 'read-only'> {
    const { client, release } = await this.#lease(this.#pools.health)
    // After a takeover, a connection stays on its server.
    let canWrite = false
    try {
      const [row] = await send<{ can_write: boolean }>(client, selectCanWrite)
      canWrite = row?.can_write === true
      return canWrite ? 'up' : 'read-only'
    } finally {
      release(!canWrite)
    }
  }
}

/** Replicas are read-only, and so are servers and databases that an administrator has made read-only. */
const selectCanWrite = statement('can-write')`
    select current_setting('transaction_read_only') = 'off' as can_write`
