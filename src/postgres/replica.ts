/** One server of DATABASE_READ_URL: its connections, and what it has replayed. */
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

/** The same shares as on the primary: an account or a stream takes no more of a replica than it takes there. */
const CONNECTIONS = { clients: 5, streams: 4, console: 1 }
export type ReadKind = keyof typeof CONNECTIONS

/**
 * The check takes a millisecond. A replica that needs this long is stopped, or its packets are dropped. Other reads wait up to
 * 2 s for a connection to it, so the primary gets them in time.
 */
const ANSWER_TIMEOUT_MS = 1_000
const CHECK = { ...selectReplicaState, query_timeout: ANSWER_TIMEOUT_MS }
const WAIT_STEP_MS = 5

export class Replica {
  readonly name: string
  readonly #shares: Record<ReadKind, Share>
  /** Its own connection, so that no read delays the question what the replica has replayed. */
  readonly #watch: Share
  readonly #clients = new Set<pg.Client>()
  #state: ReplicaState | null = null
  #check: Promise<ReplicaState> | null = null
  /** Null: not known yet. Rejects with a FatalError if a pooler does not keep sessions. */
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

  /** What it had replayed when it last answered. Null: it does not answer. */
  get state(): ReplicaState | null {
    return this.#state
  }

  /** Sends the statement behind a check on the same connection, so the rows are at least as new as the state. */
  async read(
    kind: ReadKind,
    claimant: Claimant | undefined,
    lineage: Lineage,
    statement: Statement | string,
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
      // One of several servers behind the address may hang, and not the one that the watch asks.
      if (isSilence(error)) this.#giveUp(error)
      throw error
    })
  }

  /** Whether it replays the position in time. */
  async reaches(position: WalPosition, lineage: Lineage, deadlineMs: number): Promise<boolean> {
    while (this.#state !== null && this.#state.position < position) {
      if (performance.now() > deadlineMs) return false
      await sleep(WAIT_STEP_MS)
      await this.check(lineage)
    }
    return this.#state !== null
  }

  /** Asks what it has replayed. All callers share one question. Never throws. */
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

  /** Ends what waits for its answers, so that another server is asked. It is asked again when the watch gets an answer. */
  #giveUp(error: Error): void {
    if (this.#state === null) return
    this.#state = null
    for (const client of this.#clients) abandon(client, error)
    for (const share of Object.values(this.#shares)) share.refuseWaiting(error)
  }

  connectionStates(): Array<{ share: string; total: number; idle: number; waiting: number }> {
    return Object.entries(this.#shares).map(([share, { state }]) => ({
      share: `replica-${share}`,
      ...state(),
    }))
  }

  async close(): Promise<void> {
    await Promise.all([...Object.values(this.#shares), this.#watch].map((share) => share.close()))
    // A server that hangs never confirms the end, and the open sockets would keep the process of a command running.
    for (const client of this.#clients) abandon(client)
  }

  async #ask(lineage: Lineage | null): Promise<ReplicaState> {
    await this.#requireSessions()
    const work = ({ client }: Lease) => send<ReplicaStateRow>(client, CHECK, valuesOf(lineage))
    const [row] = await withLease(() => this.#watch.lease(), work)
    return replicaStateOf(row)
  }

  /** Check and read must reach the same session, and the session must have our settings. */
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

/** Whether the server said nothing, not even that it refuses. */
function isSilence(error: unknown): error is DatabaseUnavailable {
  return error instanceof DatabaseUnavailable && !(error.cause instanceof pg.DatabaseError)
}

/** A class of clients that are in the set until they are closed. */
function clientOf(clients: Set<pg.Client>): new (settings: pg.ClientConfig) => pg.Client {
  return class extends pg.Client {
    constructor(settings: pg.ClientConfig) {
      super(settings)
      clients.add(this)
      this.once('end', () => clients.delete(this))
    }
  }
}
