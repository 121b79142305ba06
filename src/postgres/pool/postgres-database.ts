/** A Database on a PostgreSQL server, through pg. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Database, DatabaseState, LookupKind } from '../database.ts'
import type { Connection } from '../embedded/server.ts'
import { DatabaseUnavailable, isLostConnection } from '../faults.ts'
import { type AskPrimary, type Reads, ReplicaReads, type ReplicaServers } from '../replication/reads.ts'
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
import { type Lease, Share, send, transactionsOn } from './pool.ts'
import { requireSessions } from './pooler.ts'
import type { Claimant } from './turns.ts'

/**
 * Connections per instance, by the work that uses them. No kind of work can take the connections of another.
 *
 * - `health`: one probe at a time, which all callers of the health check share.
 * - `lookups`: one for callers and one for accounts, each pipelined.
 * - `intake`: for batches that are split.
 * - `clients`: reads and writes of clients and the service's own work. One organization leaves at least one to all others.
 * - `streams`: one for each stream that may be open. They close after 10 s without use.
 * - `console`: one for all pages of the console, so that a search of an operator delays only other operators. It closes after
 *   10 s without use.
 *
 * Beside them are four pinned connections for flushes and one for endpoints, so an instance without a console has
 * 1 + 2 + 2 + 5 + 4 + 4 + 1 = 19. One instance at a time runs maintenance. So five instances, one of which serves the console,
 * fit PostgreSQL's default of 100, of which superusers keep 3: 5 × 19 + 1 + 1 = 97. If DATABASE_URL names several hosts, each
 * instance has one connection more to each of them. replica.ts has the connections to replicas.
 */
const CONNECTIONS = { health: 1, lookups: 2, intake: 2, clients: 5, streams: 4, console: 1 }
/** Health probes wait 1 to 2 s, so a slower database counts as down. */
const STATE_TIMEOUT_MS = 1_500

export class PostgresDatabase implements Database {
  readonly kind = 'postgres'
  readonly #connector: Connector
  readonly #shares: Record<keyof typeof CONNECTIONS, Share>
  readonly #createShare: (name: string, connections: number, isDivided?: boolean) => Share
  readonly #pinnedShares: Share[] = []
  readonly #pinned: PinnedConnection[] = []
  readonly #lookups: Record<LookupKind, PinnedConnection>
  readonly #ownWork: Transactions
  readonly intake: Transactions
  readonly console: Transactions
  readonly reads: Reads
  /** Null: the primary serves all reads. */
  readonly #replicaReads: ReplicaReads | null
  #probe: Promise<'up' | 'read-only'> | null = null
  #isReady = false
  #replication: Replication | null = null

  /**
   * @param target a postgres:// address or the embedded server; nothing connects before the first query
   * @param onConnectionLost called when the server closes an idle connection
   * @param replicas may serve reads; nothing connects to them before the first read
   */
  constructor(
    target: string | Connection,
    onConnectionLost: (error: Error) => void,
    replicas: ReplicaServers | null = null,
  ) {
    this.#connector = new Connector(target)
    this.#createShare = (name, connections, isDivided = false) =>
      new Share(this.#connector.poolConfig(), { name, connections, isDivided }, onConnectionLost)
    this.#shares = {
      health: this.#createShare('health', CONNECTIONS.health),
      lookups: this.#createShare('lookups', CONNECTIONS.lookups),
      intake: this.#createShare('intake', CONNECTIONS.intake),
      clients: this.#createShare('clients', CONNECTIONS.clients, true),
      streams: this.#createShare('streams', CONNECTIONS.streams),
      console: this.#createShare('console', CONNECTIONS.console),
    }
    this.#lookups = { caller: this.#pinOn(this.#shares.lookups), account: this.#pinOn(this.#shares.lookups) }
    this.#ownWork = transactionsOn(() => this.#lease(this.#shares.clients))
    this.intake = transactionsOn(() => this.#lease(this.#shares.intake))
    this.console = transactionsOn(() => this.#lease(this.#shares.console))
    const streams = transactionsOn(() => this.#lease(this.#shares.streams))
    const primary: Reads = {
      forTenant: (tenant) => this.forTenant(tenant),
      streams: () => ({
        query: (statement, values) => readAgainIfLost(() => streams.query(statement, values)),
      }),
      console: () => this.console,
    }
    this.#replicaReads = replicas && new ReplicaReads(replicas, primary, this.#askCallers, onConnectionLost)
    this.reads = this.#replicaReads ?? primary
  }

  requireConfigured(): void {}

  /** The connections of each share that are open and idle, and the requests that wait for one. */
  connectionStates(): Array<{ share: string; total: number; idle: number; waiting: number }> {
    const pinned = this.#pinnedShares.map((share) => share.state())
    const sum = (field: 'total' | 'idle' | 'waiting') => pinned.reduce((all, state) => all + state[field], 0)
    return [
      ...Object.entries(this.#shares).map(([name, share]) => ({ share: name, ...share.state() })),
      { share: 'pinned', total: sum('total'), idle: sum('idle'), waiting: sum('waiting') },
      ...(this.#replicaReads?.connectionStates() ?? []),
    ]
  }

  /** Bytes of WAL that each replica of DATABASE_READ_URL has not replayed. Null: the replica cannot be read. */
  async replicaLags(): Promise<Array<{ replica: string; behindBytes: number | null }>> {
    return this.#replicaReads?.lags() ?? []
  }

  /** Lets queries through: from now on the schema is the one that they are written for. */
  markReady(): void {
    this.#isReady = true
  }

  async state(): Promise<DatabaseState> {
    // All callers share one probe, so that they never wait for each other.
    this.#probe ??= this.#probeState().finally(() => {
      this.#probe = null
    })
    const late = sleep(STATE_TIMEOUT_MS, 'down' as const, { ref: false })
    return Promise.race([this.#probe, late]).catch(() => 'down' as const)
  }

  get replication(): ReplicationState | null {
    return this.#replication?.state ?? null
  }

  /** Null if no standby is expected. */
  async checkReplication(): Promise<Replication | null> {
    this.#replication = await readReplication(this, this.#connector.hasSeveralHosts)
    return this.#replication
  }

  async lookup<R extends Row>(kind: LookupKind, statement: Statement, values: unknown[]): Promise<R[]> {
    const [rows] = await this.#lookups[kind].pipelineIdempotent([{ statement, values }])
    return rows as R[]
  }

  forTenant(tenant: Claimant): Transactions {
    return transactionsOn(() => this.#lease(this.#shares.clients, tenant))
  }

  query<R extends Row>(statement: Statement, values?: unknown[]): Promise<R[]> {
    return this.#ownWork.query<R>(statement, values)
  }

  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T> {
    return this.#ownWork.transaction(work)
  }

  readonly pipeline: SendPipeline = (statements) => this.#ownWork.pipeline(statements)

  pin(): PinnedConnection {
    const share = this.#createShare('pinned', 1)
    this.#pinnedShares.push(share)
    return this.#pinOn(share)
  }

  /** Throws a FatalError if a connection pooler in between does not keep sessions. */
  requireSessions(): Promise<void> {
    return requireSessions(async () => {
      const client = await this.#connector.open('request')
      return { client, release: () => void client.end().catch(() => undefined) }
    })
  }

  async session<T>(work: (session: Queryable) => Promise<T>): Promise<T> {
    const client = await this.#connector.open('session')
    try {
      return await work({ query: (statement, values) => send(client, statement, values) })
    } finally {
      await client.end().catch(() => undefined)
    }
  }

  async close(): Promise<void> {
    await this.#replicaReads?.close()
    for (const pinned of this.#pinned) pinned.release()
    const shares = [...Object.values(this.#shares), ...this.#pinnedShares]
    await Promise.all(shares.map((share) => share.close()))
    this.#connector.close()
  }

  /** Uses the connection that looks up callers: its queries take microseconds, and they wait for no turn of a client. */
  readonly #askCallers: AskPrimary = (statement) => this.lookup('caller', statement, [])

  #requireReady(): void {
    if (!this.#isReady) throw new DatabaseUnavailable(new Error('the schema is not ready yet'))
  }

  async #lease(share: Share, claimant?: Claimant): Promise<Lease> {
    this.#requireReady()
    if (this.#connector.mustLocate) await this.#connector.locate()
    return share.lease(claimant)
  }

  #pinOn(share: Share): PinnedConnection {
    const pinned = new PinnedConnection(() => this.#lease(share))
    this.#pinned.push(pinned)
    return pinned
  }

  async #probeState(): Promise<'up' | 'read-only'> {
    const { client, release } = await this.#lease(this.#shares.health)
    // A connection keeps to its server after another one has taken over, so it is only kept if it can write.
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

/** A page of a stream meets a connection that died while the client read, or each of those that were idle. */
async function readAgainIfLost<T>(read: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await read()
    } catch (error) {
      if (!isLostConnection(error) || attempt > CONNECTIONS.streams) throw error
    }
  }
}

/** Read-only are replicas, and servers and databases that an administrator has set so. */
const selectCanWrite = statement('can-write')`
    select current_setting('transaction_read_only') = 'off' as can_write`
