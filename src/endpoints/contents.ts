/**
 * What deliveries contain, read when their connection stands. Between the read of a content and the moment at which its body is in
 * the kernel's buffers, erasures of the account wait (decision 46):
 *
 * 1. A batch takes the locks of its accounts, shared, in a statement of its own, and reads in the next one. So it either reads
 *    after an erasure, or the erasure waits for it.
 * 2. Deliveries of one account share a hold of its lock. A session that has a lock gets it again without queueing, so erasures
 *    would never get it. Every HOLD_JOINED_MS, a batch also reads whether an erasure waits. If one does, later deliveries wait
 *    until the lock is released, and take it again behind the erasure. An unused hold is released after HOLD_JOINED_MS.
 * 3. If an erasure has the lock or waits for it, the account's deliveries try again HOLD_RETRY_MS later. Others are not delayed.
 * 4. The writer of the body calls `release`. If the session is lost, and the locks with it, `whenLost` stops the writing.
 *
 * Contents being read or written are limited by their bytes: see content-budget.ts.
 */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { isLostConnection, NOT_PREPARED, sqlStateOf } from '../postgres/faults.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import type { BoundStatement, Row, Statement } from '../postgres/statement.ts'
import { type ContentRow, holdSending, loadContents, releaseSending, renewSending } from './backlog.ts'
import { ContentBudget, type Reservation } from './content-budget.ts'

/** An erasure may wait this long for deliveries that join, in addition to the write of the last one: see post.ts. */
const HOLD_JOINED_MS = 20
const HOLD_RETRY_MS = 10
/** As long as a request. Its attempt has ended by then. */
const READ_MAX_MS = 10_000
/** The next batch is in the pipeline while the database works on one and the process on the rows of another. */
const BATCHES_IN_FLIGHT_MAX = 3
/** Contents of unknown size that one batch may read: 32 × 1 MiB at worst. */
const READS_PER_BATCH = 32
/** As many as PinnedConnection makes for idempotent transactions. */
const ATTEMPTS_MAX = 10

/** A content that no erasure has reached yet. */
export interface HeldContent {
  row: ContentRow
  /** Lets erasures pass. Call it once the body is written or can no longer be written. */
  release: () => void
  /** Calls `stop` when erasures wait no longer. */
  whenLost: (stop: () => void) => void
}

/** Does not refer to the content, which would otherwise stay in memory until the response. */
interface Writing {
  stop: () => void
}

interface Read {
  delivery: LeasedDelivery
  isProven: boolean
  failures: number
  startedAtMs: number
  resolve: (content: HeldContent | undefined) => void
  reject: (error: unknown) => void
}

interface Hold {
  joinUntilMs: number
  /** Reads in progress. */
  reading: number
  writings: Set<Writing>
  /** An erasure waits for the contents, so no read joins them. */
  isClosed: boolean
  /** An erasure had the lock, or waited for it, before this session asked. */
  isRefused: boolean
  /** The session has ended. */
  isLost: boolean
}

interface Batch {
  /** Of the database, counted by the sessions that were lost. */
  session: number
  reads: Array<{ read: Read; hold: Hold; reservation: Reservation }>
  toHold: bigint[]
  toRenew: bigint[]
  toRelease: bigint[]
}

export class Contents {
  readonly #connection: PinnedConnection
  readonly #budget = new ContentBudget()
  readonly #holds = new Map<bigint, Hold>()
  #waiting: Read[] = []
  #released: bigint[] = []
  #session = 0
  #batchesInFlight = 0
  #isScheduled = false
  #idleTimer: NodeJS.Timeout | null = null

  constructor(connection: PinnedConnection) {
    this.#connection = connection
    connection.whenLost(() => this.#loseHolds())
  }

  /**
   * Undefined: the delivery no longer exists.
   * @param isProven the endpoint answers quickly, so its contents do not wait for those of slow endpoints
   */
  read(delivery: LeasedDelivery, isProven = true): Promise<HeldContent | undefined> {
    const startedAtMs = performance.now()
    return new Promise((resolve, reject) => {
      this.#enqueue({ delivery, isProven, failures: 0, startedAtMs, resolve, reject })
    })
  }

  #enqueue(read: Read): void {
    this.#waiting.push(read)
    this.#runSoon()
  }

  /** Reads of one turn of the event loop share a batch. */
  #runSoon(): void {
    if (this.#isScheduled || this.#batchesInFlight >= BATCHES_IN_FLIGHT_MAX) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      const batch = this.#takeBatch()
      if (batch !== null) void this.#run(batch)
    })
  }

  /** Null: there is nothing to do now. */
  #takeBatch(): Batch | null {
    const batch: Batch = {
      session: this.#session,
      reads: [],
      toHold: [],
      toRenew: [],
      toRelease: this.#released.splice(0),
    }
    this.#waiting = this.#waiting.filter((read) => !this.#join(batch, read))
    return [batch.reads, batch.toRelease].some(({ length }) => length > 0) ? batch : null
  }

  /** Whether the batch takes the read. */
  #join(batch: Batch, read: Read): boolean {
    if (batch.reads.length >= READS_PER_BATCH) return false
    const nowMs = performance.now()
    if (nowMs > read.startedAtMs + READ_MAX_MS) {
      read.reject(new Error('the content was not read in time'))
      return true
    }
    const { accountId } = read.delivery
    const found = this.#holds.get(accountId)
    if (found?.isClosed) return false
    const reservation = this.#budget.reserve(read.isProven)
    if (reservation === null) return false
    const hold = found ?? this.#openHold(accountId, batch)
    if (hold.joinUntilMs < nowMs) {
      hold.joinUntilMs = nowMs + HOLD_JOINED_MS
      batch.toRenew.push(accountId)
    }
    hold.reading += 1
    batch.reads.push({ read, hold, reservation })
    return true
  }

  #openHold(accountId: bigint, { toHold }: Batch): Hold {
    const joinUntilMs = performance.now() + HOLD_JOINED_MS
    const writings = new Set<Writing>()
    const hold = { joinUntilMs, reading: 0, writings, isClosed: false, isRefused: false, isLost: false }
    this.#holds.set(accountId, hold)
    toHold.push(accountId)
    return hold
  }

  async #run(batch: Batch): Promise<void> {
    this.#batchesInFlight += 1
    try {
      const { held, renewed, rows } = await this.#send(batch)
      for (const accountId of batch.toRenew) if (!renewed.has(accountId)) this.#close(accountId)
      for (const { read, hold, reservation } of batch.reads) {
        const { accountId, id } = read.delivery
        if (batch.toHold.includes(accountId) && !held.has(accountId)) this.#refuse(accountId, hold)
        hold.reading -= 1
        const row = rows.get(id)
        const isHeld = !(hold.isRefused || hold.isLost || hold.isClosed)
        if (isHeld && row !== undefined) {
          read.resolve(this.#content(accountId, hold, row, reservation))
          continue
        }
        this.#budget.end(reservation)
        this.#endHold(accountId, hold)
        if (hold.isRefused) this.#readLater(read)
        else if (isHeld) read.resolve(undefined)
        else this.#waiting.push(read)
      }
    } catch (error) {
      this.#retry(batch, error)
    } finally {
      this.#batchesInFlight -= 1
      if (this.#waiting.length > 0 || this.#released.length > 0) this.#runSoon()
    }
  }

  /** An erasure has the lock or waits for it. */
  #readLater(read: Read): void {
    setTimeout(() => this.#enqueue(read), HOLD_RETRY_MS)
  }

  async #send({ reads, toHold, toRenew, toRelease }: Batch) {
    const deliveries = reads.map(({ read }) => read.delivery)
    const keys = [
      int8Array(deliveries.map(({ accountId }) => accountId)),
      int8Array(deliveries.map(({ id }) => id)),
    ]
    const statements: BoundStatement[] = []
    const ofAccounts = (statement: Statement, ids: bigint[]) => {
      if (ids.length > 0) statements.push({ statement, values: [int8Array(ids)] })
    }
    ofAccounts(releaseSending, toRelease)
    ofAccounts(renewSending, toRenew)
    ofAccounts(holdSending, toHold)
    if (reads.length > 0) statements.push({ statement: loadContents, values: keys })
    const results = await this.#connection.pipelineOnce(statements)
    const resultOf = (wanted: Statement): Row[] =>
      results[statements.findIndex(({ statement }) => statement === wanted)] ?? []
    return {
      held: accountsIn(resultOf(holdSending)),
      renewed: accountsIn(resultOf(renewSending)),
      rows: new Map((resultOf(loadContents) as ContentRow[]).map((row) => [row.id, row])),
    }
  }

  /** Deliveries join the lock no more. */
  #close(accountId: bigint): void {
    const hold = this.#holds.get(accountId)
    if (hold !== undefined) hold.isClosed = true
  }

  #refuse(accountId: bigint, hold: Hold): void {
    hold.isRefused = true
    if (this.#holds.get(accountId) === hold) this.#holds.delete(accountId)
  }

  #content(accountId: bigint, hold: Hold, row: ContentRow, reservation: Reservation): HeldContent {
    this.#budget.settle(reservation, row)
    const writing: Writing = { stop: () => undefined }
    hold.writings.add(writing)
    const release = () => {
      this.#budget.end(reservation)
      if (hold.writings.delete(writing)) this.#endHold(accountId, hold)
      if (this.#waiting.length > 0) this.#runSoon()
    }
    const whenLost = (stop: () => void) => {
      writing.stop = stop
    }
    return { row, release, whenLost }
  }

  /** Releases a lock that erasures wait for when its last content is written. Other locks are likely to be needed again soon. */
  #endHold(accountId: bigint, hold: Hold): void {
    if (!isUnused(hold)) return
    if (hold.isClosed) this.#releaseHold(accountId)
    else this.#idleTimer ??= setTimeout(() => this.#releaseIdle(), HOLD_JOINED_MS)
  }

  #releaseIdle(): void {
    this.#idleTimer = null
    const nowMs = performance.now()
    for (const [accountId, hold] of this.#holds) {
      if (isUnused(hold) && hold.joinUntilMs < nowMs) this.#releaseHold(accountId)
      else this.#endHold(accountId, hold)
    }
  }

  #releaseHold(accountId: bigint): void {
    this.#holds.delete(accountId)
    this.#released.push(accountId)
    this.#runSoon()
  }

  #retry(batch: Batch, error: unknown): void {
    if (batch.session === this.#session) {
      // Which locks the session has is not known.
      this.#loseHolds()
      this.#connection.reset()
    }
    const isPassing = isLostConnection(error) || sqlStateOf(error) === NOT_PREPARED
    for (const { read, reservation } of batch.reads) {
      this.#budget.end(reservation)
      read.failures += 1
      if (isPassing && read.failures < ATTEMPTS_MAX) this.#waiting.push(read)
      else read.reject(error)
    }
  }

  #loseHolds(): void {
    this.#session += 1
    this.#released = []
    const holds = [...this.#holds.values()]
    this.#holds.clear()
    for (const hold of holds) {
      hold.isLost = true
      for (const { stop } of hold.writings) stop()
    }
    if (this.#waiting.length > 0) this.#runSoon()
  }
}

const isUnused = ({ writings, reading, isLost, isRefused }: Hold): boolean =>
  writings.size === 0 && reading === 0 && !isLost && !isRefused

/** bigint[] of a result of pg. */
const accountsIn = ([row]: Row[]): Set<bigint> => new Set(((row?.held ?? []) as string[]).map(BigInt))
