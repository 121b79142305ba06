/**
 * Reads the contents of deliveries once their connection is open. Erasures of the account wait from the read of a content until its
 * body is in the kernel's buffers (decision 46):
 *
 * 1. A batch takes shared locks of its accounts in one statement and reads in the next one. So it either reads after an erasure, or
 *    the erasure waits for it. holds.ts decides how long a lock is held.
 * 2. If an erasure has the lock or waits for it, the account's deliveries try again HOLD_RETRY_MS later. Others are not delayed.
 * 3. The writer of the body calls `release`. If the session is lost, and the locks with it, `whenLost` stops the writing.
 */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { isLostConnection, isUnprepared } from '../postgres/faults.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import type { BoundStatement, Row, Statement } from '../postgres/statement.ts'
import { type ContentRow, holdSending, loadContents, releaseSending, renewSending } from './backlog.ts'
import { ContentBudget, type Hold, Holds, type LockChanges, type Reservation } from './holds.ts'

const HOLD_RETRY_MS = 10
/** The time limit of a request, after which its attempt has ended. */
const READ_MAX_MS = 10_000
/** One in the pipeline, one in the database, and one whose rows this process handles. */
const BATCHES_IN_FLIGHT_MAX = 3
/** The size of contents is unknown: 32 × 1 MiB at worst. */
const READS_PER_BATCH = 32
/** The same as in PinnedConnection. */
const ATTEMPTS_MAX = 10

/** A content for which erasures wait. */
interface HeldContent {
  row: ContentRow
  /** Lets erasures continue. Call it when the body is written or will not be written. */
  release: () => void
  /** Calls `stop` if erasures no longer wait. */
  whenLost: (stop: () => void) => void
}

interface Read {
  delivery: LeasedDelivery
  isProven: boolean
  failures: number
  startedAtMs: number
  resolve: (content: HeldContent | undefined) => void
  reject: (error: unknown) => void
}

interface Batch {
  session: number
  reads: Array<{ read: Read; hold: Hold; reservation: Reservation }>
  locks: LockChanges
}

export class Contents {
  readonly #connection: PinnedConnection
  readonly #budget = new ContentBudget()
  readonly #holds = new Holds(() => this.#runSoon())
  #waiting: Read[] = []
  #session = 0
  #batchesInFlight = 0
  #isScheduled = false

  constructor(connection: PinnedConnection) {
    this.#connection = connection
    connection.whenLost(() => this.#loseHolds())
  }

  /**
   * Returns undefined if the delivery no longer exists.
   * @param isProven the endpoint responds quickly, so its contents do not wait for those of slow endpoints
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

  /** Returns null if there is nothing to do now. */
  #takeBatch(): Batch | null {
    const reads: Batch['reads'] = []
    this.#waiting = this.#waiting.filter((read) => !this.#join(reads, read))
    if (reads.length === 0 && !this.#holds.hasReleases) return null
    return { session: this.#session, reads, locks: this.#holds.takeChanges() }
  }

  /** Returns whether the read has left the queue. */
  #join(reads: Batch['reads'], read: Read): boolean {
    if (reads.length >= READS_PER_BATCH) return false
    if (performance.now() > read.startedAtMs + READ_MAX_MS) {
      read.reject(new Error('the content was not read in time'))
      return true
    }
    const reservation = this.#budget.reserve(read.isProven)
    if (reservation === null) return false
    const hold = this.#holds.join(read.delivery.accountId)
    if (hold === null) this.#budget.end(reservation)
    else reads.push({ read, hold, reservation })
    return hold !== null
  }

  async #run(batch: Batch): Promise<void> {
    this.#batchesInFlight += 1
    try {
      const { held, renewed, rows } = await this.#send(batch)
      this.#holds.noteChanges(batch.locks, held, renewed)
      for (const { read, hold, reservation } of batch.reads) {
        const row = rows.get(read.delivery.id)
        const isHeld = hold.state === 'open'
        if (isHeld && row !== undefined) {
          read.resolve(this.#content(hold, row, reservation))
          continue
        }
        this.#budget.end(reservation)
        this.#holds.leave(hold)
        // An erasure has the lock or waits for it.
        if (hold.state === 'refused') setTimeout(() => this.#enqueue(read), HOLD_RETRY_MS)
        else if (isHeld) read.resolve(undefined)
        else this.#waiting.push(read)
      }
    } catch (error) {
      this.#retry(batch, error)
    } finally {
      this.#batchesInFlight -= 1
      if (this.#waiting.length > 0 || this.#holds.hasReleases) this.#runSoon()
    }
  }

  async #send({ reads, locks }: Batch) {
    const deliveries = reads.map(({ read }) => read.delivery)
    const keys = [
      int8Array(deliveries.map(({ accountId }) => accountId)),
      int8Array(deliveries.map(({ id }) => id)),
    ]
    const statements: BoundStatement[] = []
    const ofAccounts = (statement: Statement, ids: bigint[]) => {
      if (ids.length > 0) statements.push({ statement, values: [int8Array(ids)] })
    }
    ofAccounts(releaseSending, locks.toRelease)
    ofAccounts(renewSending, accountsOf(locks.toRenew))
    ofAccounts(holdSending, accountsOf(locks.toHold))
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

  #content(hold: Hold, row: ContentRow, reservation: Reservation): HeldContent {
    this.#budget.settle(reservation, row)
    const { writing, end } = this.#holds.beginWriting(hold)
    const release = () => {
      this.#budget.end(reservation)
      end()
      if (this.#waiting.length > 0) this.#runSoon()
    }
    const whenLost = (stop: () => void) => {
      writing.stop = stop
    }
    return { row, release, whenLost }
  }

  #retry(batch: Batch, error: unknown): void {
    if (batch.session === this.#session) {
      // It is unknown which locks the session holds.
      this.#loseHolds()
      this.#connection.reset()
    }
    const isPassing = isLostConnection(error) || isUnprepared(error)
    for (const { read, reservation } of batch.reads) {
      this.#budget.end(reservation)
      read.failures += 1
      if (isPassing && read.failures < ATTEMPTS_MAX) this.#waiting.push(read)
      else read.reject(error)
    }
  }

  #loseHolds(): void {
    this.#session += 1
    this.#holds.lose()
    if (this.#waiting.length > 0) this.#runSoon()
  }
}

const accountsOf = (holds: Hold[]): bigint[] => holds.map(({ accountId }) => accountId)

/** bigint[] of a result of pg. */
const accountsIn = ([row]: Row[]): Set<bigint> => new Set(((row?.held ?? []) as string[]).map(BigInt))
