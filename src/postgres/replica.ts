/** One server of DATABASE_READ_URL: its connections, and the position that it has replayed. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { DatabaseServer } from '../database-url.ts'
import { FatalError } from '../errors.ts'
import { Connector } from './connector.ts'
import { DatabaseUnavailable } from './faults.ts'
import { requireSessions } from './pooler.ts'
import { abandon } from './primary.ts'
import { type Lease, Share, send, withLease } from './share.ts'
import type { Row, Statement } from './statement.ts'
import type { Claimant } from './turns.ts'
import {
  type Lineage,
  type ReplicaState,
  type ReplicaStateRow,
  replicaStateOf,
  selectReplicaState,
  type WalPosition,
} from './wal-position.ts'

/** The same shares as on the primary, so that an account or a stream takes no more of a replica than of the primary. */
const CONNECTIONS = { clients: 5, streams: 4, console: 1 }
export type ReadKind = keyof typeof CONNECTIONS

/**
 * The check takes a millisecond. A replica that needs this long is stopped, or its packets are dropped. Requests wait up to 2 s for
 * a connection (turns.ts), so the primary still gets those that wait for this replica.
 */
const ANSWER_TIMEOUT_MS = 1_000
const CHECK = { ...selectReplicaState, query_timeout: ANSWER_TIMEOUT_MS }
const WAIT_STEP_MS = 5

export class Replica {
  readonly name: string
  readonly #shares: Record<ReadKind, Share>
  /** A connection of its own, so that no read delays the watch. */
  readonly #watch: Share
  readonly #clients = new Set<pg.Client>()
  #state: ReplicaState | null = null
  #check: Promise<ReplicaState> | null = null
  /** Null: not checked yet. Rejects with a FatalError if a pooler does not keep sessions. */
  #sessions: Promise<void> | null = null

  constructor(server: DatabaseServer, onConnectionLost: (error: Error) => void) {
    this.name = server.name
    const target = {
      ...new Connector(server.url).poolConfig(),
      connectionTimeoutMillis: ANSWER_TIMEOUT_MS,
      Client: clientOf(this.#clients),
    }
    const share = (name: string, connections: number, isDivided = false) =>
      new Share(target as unknown as pg.PoolConfig, { name, connections, isDivided }, onConnectionLost)
    this.#shares = {
      clients: share('clients', CONNECTIONS.clients, true),
      streams: share('streams', CONNECTIONS.streams),
      console: share('console', CONNECTIONS.console),
    }
    this.#watch = share('watch', 1)
  }

  /** The state at the replica's last answer. Null: the replica does not answer. */
  get state(): ReplicaState | null {
    return this.#state
  }

  /** Sends the statement behind a check on the same connection, so the rows are at least as new as the state. */
  async read(
    kind: ReadKind,
    claimant: Claimant | undefined,
    lineage: Lineage,
    statement: Statement,
    values: unknown[],
  ): Promise<{ state: ReplicaState; rows: Row[] }> {
    const work = async ({ client }: Lease) => {
      const [checked, read] = await Promise.allSettled([
        send<ReplicaStateRow>(client, CHECK, valuesOf(lineage)),
        send(client, statement, values),
      ])
      if (checked.status === 'rejected') throw checked.reason
      if (read.status === 'rejected') throw read.reason
      return { state: replicaStateOf(checked.value[0]), rows: read.value }
    }
    return withLease(() => this.#shares[kind].lease(claimant), work).catch((error) => {
      // Of several servers behind the address, one may hang that the watch does not reach.
      if (isSilence(error)) this.#giveUp(error)
      throw error
    })
  }

  /** Whether the replica replays the position before the deadline. */
  async reaches(position: WalPosition, lineage: Lineage, deadlineMs: number): Promise<boolean> {
    while (this.#state !== null && this.#state.position < position) {
      if (performance.now() > deadlineMs) return false
      await sleep(WAIT_STEP_MS)
      await this.check(lineage)
    }
    return this.#state !== null
  }

  /** Updates `state`. Concurrent callers share one query. Never throws. */
  async check(lineage: Lineage | null): Promise<void> {
    this.#check ??= this.#ask(lineage).finally(() => {
      this.#check = null
    })
    await this.#check.then(
      (state) => {
        this.#state = state
      },
      (error: Error) => this.#giveUp(error),
    )
  }

  /** Fails all requests that wait for this replica, so that they go to another server. The next answer to the watch ends this. */
  #giveUp(error: Error): void {
    if (this.#state === null) return
    this.#state = null
    for (const client of this.#clients) abandon(client, error)
    for (const share of Object.values(this.#shares)) share.refuseWaiting(error)
  }

  connectionStates(): Array<{ share: string; total: number; idle: number; waiting: number }> {
    return Object.entries(this.#shares).map(([name, share]) => ({
      share: `replica-${name}`,
      ...share.state(),
    }))
  }

  async close(): Promise<void> {
    await Promise.all([...Object.values(this.#shares), this.#watch].map((share) => share.close()))
    // A server that hangs never closes its side, and an open socket would keep the process of a command running.
    for (const client of this.#clients) abandon(client)
  }

  async #ask(lineage: Lineage | null): Promise<ReplicaState> {
    await this.#requireSessions()
    const work = ({ client }: Lease) => send<ReplicaStateRow>(client, CHECK, valuesOf(lineage))
    const [row] = await withLease(() => this.#watch.lease(), work)
    return replicaStateOf(row)
  }

  /** The check and the read must reach the same session, and the session must have the settings of the service. */
  #requireSessions(): Promise<void> {
    this.#sessions ??= requireSessions(() => this.#shares.clients.lease()).catch((error) => {
      if (!(error instanceof FatalError)) this.#sessions = null
      throw error
    })
    return this.#sessions
  }
}

function valuesOf(lineage: Lineage | null): unknown[] {
  return [lineage?.mark, lineage?.timeline]
}

/** Whether the server did not answer at all, not even with an error. */
function isSilence(error: unknown): error is DatabaseUnavailable {
  return error instanceof DatabaseUnavailable && !(error.cause instanceof pg.DatabaseError)
}

/** A class of clients that are in the set until they are closed, because pg.Pool does not list its clients. */
function clientOf(clients: Set<pg.Client>): new (settings: pg.ClientConfig) => pg.Client {
  return class extends pg.Client {
    constructor(settings: pg.ClientConfig) {
      super(settings)
      clients.add(this)
      this.once('end', () => clients.delete(this))
    }
  }
}
