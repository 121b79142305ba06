/** Reads that a replica may answer (DATABASE_READ_URL). If no replica can, the primary does. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { DatabaseServer } from '../database-url.ts'
import { type ReadOutcome, readAnswered } from '../observability/facts.ts'
import { DatabaseBusy, DatabaseUnavailable, STATEMENT_TIMEOUT, sqlStateOf } from './faults.ts'
import { type ReadKind, Replica } from './replica.ts'
import type { Queryable, Row, Statement } from './statement.ts'
import type { Claimant } from './turns.ts'
import {
  type AskPrimary,
  type Lineage,
  PRIMARY_ONLY,
  type PrimaryState,
  type ReplicaState,
  readPrimaryState,
  type WalPosition,
} from './wal-position.ts'

/** Servers for reads. An answer may be READ_MAX_LAG_MS old. With `after`, it also includes that position. */
export interface Reads {
  /** For a client's pages. A query throws DatabaseBusy if it waits too long for a connection. */
  forTenant(tenant: Claimant, after?: WalPosition | null): Queryable
  /** For the statements of streams. */
  streams(after?: WalPosition | null): Queryable
  /** For the searches and facts that operators see. */
  console(after?: WalPosition | null): Queryable
}

export interface ReplicaServers {
  servers: DatabaseServer[]
  /** A replica that lacks a commit of more than this time ago is not read. */
  maxLagMs: number
}

/** Time between two queries of the primary's position and of each replica's: a quarter of the smallest READ_MAX_LAG_MS. */
const WATCH_INTERVAL_MS = 250
/** A client that reads its own write waits this long at most. A replica that keeps up replays the write within a few milliseconds. */
const WAIT_MAX_MS = 200
/** The first read waits this long for a replica that can be read, and then goes to the primary. */
const FIRST_ANSWER_MAX_MS = 1_000

/**
 * An answer is never older than READ_MAX_LAG_MS, whatever the clocks of the servers say. The instance keeps the primary's positions
 * of the last READ_MAX_LAG_MS. Each read checks on its own connection that the replica has replayed the oldest of them.
 */
export class ReplicaReads implements Reads {
  readonly #replicas: Replica[]
  readonly #maxLagMs: number
  readonly #primary: Reads
  readonly #askPrimary: AskPrimary
  /** States of the current timeline, oldest first. */
  #states: PrimaryState[] = []
  #timeline: string | null = null
  /** The newest mark when the timeline began. Null: there was none, or the instance saw no other timeline before. */
  #inheritedMark: string | null = null
  #turn = 0
  #timer: NodeJS.Timeout | null = null
  #firstAnswers: Promise<void> | null = null
  #isClosed = false

  constructor(
    { servers, maxLagMs }: ReplicaServers,
    primary: Reads,
    askPrimary: AskPrimary,
    onConnectionLost: (error: Error) => void,
  ) {
    this.#replicas = servers.map((server) => new Replica(server, onConnectionLost))
    this.#maxLagMs = maxLagMs
    this.#primary = primary
    this.#askPrimary = askPrimary
  }

  forTenant(tenant: Claimant, after: WalPosition | null = null): Queryable {
    return this.#on('clients', after, this.#primary.forTenant(tenant), tenant)
  }

  streams(after: WalPosition | null = null): Queryable {
    return this.#on('streams', after, this.#primary.streams())
  }

  console(after: WalPosition | null = null): Queryable {
    return this.#on('console', after, this.#primary.console())
  }

  /** Begins to watch the primary and the replicas. The first read begins it as well. */
  start(): Promise<void> {
    this.#firstAnswers ??= this.#begin()
    return this.#firstAnswers
  }

  /** Bytes of WAL up to the primary's newest position that each replica has not replayed. Null: the replica cannot be read. */
  lags(): Array<{ replica: string; behindBytes: number | null }> {
    const newest = this.#states.at(-1)?.position ?? 0n
    return this.#replicas.map(({ name, state }) => {
      const behindBytes = state?.isCopy ? Math.max(0, Number(newest - state.position)) : null
      return { replica: name, behindBytes }
    })
  }

  connectionStates(): Array<{ share: string; total: number; idle: number; waiting: number }> {
    return this.#replicas.flatMap((replica) => replica.connectionStates())
  }

  async close(): Promise<void> {
    this.#isClosed = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    await Promise.all(this.#replicas.map((replica) => replica.close()))
  }

  #on(kind: ReadKind, after: WalPosition | null, primary: Queryable, claimant?: Claimant): Queryable {
    return {
      query: async <R extends Row>(statement: Statement, values: unknown[] = []) => {
        await this.start()
        const read = (replica: Replica, lineage: Lineage) =>
          replica.read(kind, claimant, lineage, statement, values)
        const { outcome, rows } = await this.#readFromReplica(read, after)
        readAnswered.publish({ outcome })
        return (rows as R[] | null) ?? primary.query<R>(statement, values)
      },
    }
  }

  /** Reads from the replicas in turn until one answers. Null rows: the primary has to answer. */
  async #readFromReplica(
    read: (replica: Replica, lineage: Lineage) => ReturnType<Replica['read']>,
    after: WalPosition | null,
  ): Promise<{ outcome: ReadOutcome; rows: Row[] | null }> {
    if (after === PRIMARY_ONLY) return { outcome: 'behind', rows: null }
    const requirement = this.#requirement()
    const deadlineMs = performance.now() + WAIT_MAX_MS
    let outcome: ReadOutcome = 'unavailable'
    this.#turn += 1
    for (let no = 0; requirement !== null && no < this.#replicas.length; no += 1) {
      const replica = this.#replicas[(this.#turn + no) % this.#replicas.length] as Replica
      if (!replica.state?.isCopy) continue
      outcome = 'behind'
      if (!meets(replica.state, requirement)) continue
      if (after !== null && !(await replica.reaches(after, requirement, deadlineMs))) continue
      const { state, rows } = await read(replica, requirement).catch((error) => {
        requireReplicaFault(error)
        if (error instanceof DatabaseUnavailable) outcome = 'unavailable'
        return { state: null, rows: [] }
      })
      const isNewEnough = state !== null && meets(state, requirement) && state.position >= (after ?? 0n)
      if (isNewEnough) return { outcome: 'replica', rows }
    }
    return { outcome, rows: null }
  }

  /** The oldest state of the last maxLagMs. An answer must include all commits up to its position. Null: there is none yet. */
  #requirement(): PrimaryState | null {
    const since = performance.now() - this.#maxLagMs
    return this.#states.find(({ takenAtMs }) => takenAtMs >= since) ?? null
  }

  /** Resolves when a replica can be read, or after FIRST_ANSWER_MAX_MS. */
  async #begin(): Promise<void> {
    const deadlineMs = performance.now() + FIRST_ANSWER_MAX_MS
    await this.#watch()
    while (performance.now() < deadlineMs && !this.#isClosed && !this.#canRead()) {
      await sleep(WATCH_INTERVAL_MS / 10)
      await this.#checkReplicas()
    }
  }

  #canRead(): boolean {
    const requirement = this.#requirement()
    return (
      requirement !== null && this.#replicas.some(({ state }) => state !== null && meets(state, requirement))
    )
  }

  async #watch(): Promise<void> {
    const state = await readPrimaryState(this.#askPrimary).catch(() => null)
    if (state !== null) this.#remember(state)
    // A replica that hangs must not keep the others from being watched.
    if (!this.#isClosed) this.#timer = setTimeout(() => void this.#watch(), WATCH_INTERVAL_MS).unref()
    await this.#checkReplicas()
  }

  /**
   * After a takeover, only a mark of the new timeline distinguishes its replicas from those of the former primary. Until there is
   * one, for about 10 s, the primary answers all reads.
   */
  #remember(state: PrimaryState): void {
    if (state.timeline !== this.#timeline) {
      this.#inheritedMark = this.#timeline === null ? null : state.mark
      this.#timeline = state.timeline
      this.#states = []
    }
    if (state.mark === this.#inheritedMark) return
    const since = performance.now() - this.#maxLagMs
    this.#states = [...this.#states.filter(({ takenAtMs }) => takenAtMs >= since), state]
  }

  async #checkReplicas(): Promise<void> {
    const requirement = this.#requirement()
    const checks = Promise.all(this.#replicas.map((replica) => replica.check(requirement)))
    await Promise.race([checks, sleep(FIRST_ANSWER_MAX_MS, undefined, { ref: false })])
  }
}

/**
 * Throws errors that the primary would return as well: a statement that takes too long, or a client that waits for its own
 * statements. Any other error may be the replica's, such as a conflict with replay or a migration that it has not replayed.
 */
function requireReplicaFault(error: unknown): void {
  if (error instanceof DatabaseBusy || sqlStateOf(error) === STATEMENT_TIMEOUT) throw error
}

/** Whether the server is a copy of the primary that has what was required. */
function meets({ isCopy, position }: ReplicaState, requirement: PrimaryState): boolean {
  return isCopy && position >= requirement.position
}
