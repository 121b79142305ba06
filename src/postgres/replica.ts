/** One server of DATABASE_READ_URL: its connections, and what it has replayed. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { DatabaseServer } from '../database-url.ts'
import { Connector } from './connector.ts'
import { PinnedConnection } from './pinned-connection.ts'
import { abandon } from './primary.ts'
import { Share, send, withLease } from './share.ts'
import type { Row, Statement } from './statement.ts'
import type { Claimant } from './turns.ts'
import {
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
 * An answer takes a millisecond. A replica that needs this long is stopped, or its packets are dropped. Reads that wait for a
 * connection to it wait 2 s at most, so they are sent to the primary in time.
 */
const ANSWER_TIMEOUT_MS = 1_000
const WAIT_STEP_MS = 5

export class Replica {
  readonly name: string
  readonly #shares: Record<ReadKind, Share>
  readonly #watchShare: Share
  readonly #watch: PinnedConnection
  readonly #clients = new Set<pg.Client>()
  #state: ReplicaState | null = null
  #check: Promise<ReplicaState> | null = null

  constructor(server: DatabaseServer, onConnectionLost: (error: Error) => void) {
    this.name = server.name
    const target = { ...new Connector(server.url).poolConfig(), Client: clientOf(this.#clients) }
    const share = (name: string, connections: number, isDivided = false) =>
      new Share(target as unknown as pg.PoolConfig, { name, connections, isDivided }, onConnectionLost)
    this.#shares = {
      clients: share('clients', CONNECTIONS.clients, true),
      streams: share('streams', CONNECTIONS.streams),
      console: share('console', CONNECTIONS.console),
    }
    this.#watchShare = share('watch', 1)
    this.#watch = new PinnedConnection(() => this.#watchShare.lease())
  }

  /** What it had replayed when it last answered. Null: it does not answer. */
  get state(): ReplicaState | null {
    return this.#state
  }

  /** Sends the statement behind a check on the same connection, so the rows are at least as new as the state. */
  async read(
    kind: ReadKind,
    claimant: Claimant | undefined,
    mark: string | null,
    statement: Statement | string,
    values: unknown[],
  ): Promise<{ state: ReplicaState; rows: Row[] }> {
    return withLease(
      () => this.#shares[kind].lease(claimant),
      async ({ client }) => {
        const answers = await Promise.allSettled([
          send<ReplicaStateRow>(client, selectReplicaState, [mark]),
          send(client, statement, values),
        ])
        const [checked, read] = answers
        if (checked.status === 'rejected') throw checked.reason
        if (read.status === 'rejected') throw read.reason
        return { state: replicaStateOf(checked.value[0]), rows: read.value }
      },
    )
  }

  /** Whether it replays the position in time. */
  async reaches(position: WalPosition, mark: string | null, deadlineMs: number): Promise<boolean> {
    while (this.#state !== null && this.#state.position < position) {
      if (performance.now() > deadlineMs) return false
      await sleep(WAIT_STEP_MS)
      await this.check(mark)
    }
    return this.#state !== null
  }

  /** Asks what it has replayed. All callers share one question. Never throws. */
  async check(mark: string | null): Promise<void> {
    this.#check ??= this.#ask(mark).finally(() => {
      this.#check = null
    })
    await this.#check.then(
      (state) => {
        this.#state = state
      },
      (error: Error) => this.#giveUp(error),
    )
  }

  /** Ends what waits for its answers, so that another server is asked. */
  #giveUp(error: Error): void {
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
    this.#watch.release()
    await Promise.all([...Object.values(this.#shares), this.#watchShare].map((share) => share.close()))
  }

  async #ask(mark: string | null): Promise<ReplicaState> {
    const late = new AbortController()
    const answer = this.#watch.pipelineIdempotent([{ statement: selectReplicaState, values: [mark] }])
    const isLate = sleep(ANSWER_TIMEOUT_MS, null, { signal: late.signal, ref: false }).catch(() => null)
    answer.catch(() => undefined)
    try {
      const rows = await Promise.race([answer, isLate])
      if (rows === null) throw new Error(`the replica ${this.name} does not answer`)
      return replicaStateOf(rows[0]?.[0] as ReplicaStateRow | undefined)
    } finally {
      late.abort()
    }
  }
}

/** Clients that are known while they are connected. */
function clientOf(clients: Set<pg.Client>): new (settings: pg.ClientConfig) => pg.Client {
  return class extends pg.Client {
    constructor(settings: pg.ClientConfig) {
      super(settings)
      clients.add(this)
      this.once('end', () => clients.delete(this))
    }
  }
}
