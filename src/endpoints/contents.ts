/**
 * What deliveries contain, read when their connection stands. Between the read of a content and the moment at which its body is in
 * the kernel's buffers, erasures of the account wait (decision 46):
 *
 * 1. A batch takes the locks of its accounts, shared, in a statement of its own, and reads in the next one. So it either reads
 *    after an erasure, or the erasure waits for it.
 * 2. Deliveries of one account share a hold of its lock. A session that has a lock gets it again without queueing, so erasures
 *    would never get it. After HOLD_JOINED_MS, deliveries join only if no erasure waits. Otherwise they wait until the lock is
 *    released, and take it again behind the erasure.
 * 3. If an erasure has the lock or waits for it, the account's deliveries try again HOLD_RETRY_MS later. Others are not delayed.
 * 4. The writer of the body calls `release`. If the session is lost, and the locks with it, `onLost` must stop the writing.
 */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { isLostConnection, NOT_PREPARED, sqlStateOf } from '../postgres/faults.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import type { BoundStatement, Row, Statement } from '../postgres/statement.ts'
import { type ContentRow, holdSending, loadContents, releaseSending, renewSending } from './backlog.ts'

/** An erasure may wait this long for deliveries that join, in addition to the write of the last one: see post.ts. */
const HOLD_JOINED_MS = 20
const HOLD_RETRY_MS = 10
/** As long as a request. Its attempt has ended by then. */
const READ_MAX_MS = 10_000
/** As many as PinnedConnection makes for idempotent transactions. */
const ATTEMPTS_MAX = 10

/** A content that no erasure has reached yet. */
export interface HeldContent {
  row: ContentRow
  /** Lets erasures pass. Call it once the body is written or can no longer be written. */
  release: () => void
  /** Set it to a function that stops the writing. It is called when erasures wait no longer. */
  onLost: () => void
}

interface Read {
  delivery: LeasedDelivery
  failures: number
  startedAtMs: number
  resolve: (content: HeldContent | undefined) => void
  reject: (error: unknown) => void
}

interface Hold {
  joinUntilMs: number
  /** Reads in progress. */
  reading: number
  contents: Set<HeldContent>
  isLost: boolean
}

interface Batch {
  reads: Array<{ read: Read; hold: Hold }>
  toHold: bigint[]
  toRenew: bigint[]
  toRelease: bigint[]
}

export class Contents {
  readonly #connection: PinnedConnection
  readonly #holds = new Map<bigint, Hold>()
  #waiting: Read[] = []
  #released: bigint[] = []
  #isRunning = false

  constructor(connection: PinnedConnection) {
    this.#connection = connection
    connection.whenLost(() => this.#loseHolds())
  }

  /** Undefined: the delivery no longer exists. */
  read(delivery: LeasedDelivery): Promise<HeldContent | undefined> {
    const startedAtMs = performance.now()
    return new Promise((resolve, reject) => {
      this.#enqueue({ delivery, failures: 0, startedAtMs, resolve, reject })
    })
  }

  #enqueue(read: Read): void {
    this.#waiting.push(read)
    this.#runSoon()
  }

  /** What is asked for in one turn of the event loop, or during another batch, shares a round trip. */
  #runSoon(): void {
    if (this.#isRunning) return
    this.#isRunning = true
    setImmediate(async () => {
      for (let batch = this.#takeBatch(); batch !== null; batch = this.#takeBatch()) await this.#run(batch)
      this.#isRunning = false
    })
  }

  /** Null: there is nothing to do now. */
  #takeBatch(): Batch | null {
    const nowMs = performance.now()
    const batch: Batch = { reads: [], toHold: [], toRenew: [], toRelease: this.#released.splice(0) }
    const late = new Set<bigint>()
    this.#waiting = this.#waiting.filter((read) => {
      const { accountId } = read.delivery
      const hold = this.#holds.get(accountId) ?? this.#openHold(accountId, batch)
      if (hold.joinUntilMs < nowMs) {
        if (hold.joinUntilMs > 0) late.add(accountId)
        return true
      }
      hold.reading += 1
      batch.reads.push({ read, hold })
      return false
    })
    batch.toRenew = [...late]
    return [batch.reads, batch.toRenew, batch.toRelease].some(({ length }) => length > 0) ? batch : null
  }

  #openHold(accountId: bigint, { toHold }: Batch): Hold {
    const hold = {
      joinUntilMs: performance.now() + HOLD_JOINED_MS,
      reading: 0,
      contents: new Set<HeldContent>(),
      isLost: false,
    }
    this.#holds.set(accountId, hold)
    toHold.push(accountId)
    return hold
  }

  async #run(batch: Batch): Promise<void> {
    try {
      const { held, renewed, rows } = await this.#send(batch)
      this.#renew(batch.toRenew, renewed)
      for (const { read, hold } of batch.reads) {
        const { accountId, id } = read.delivery
        const isRefused = batch.toHold.includes(accountId) && !held.has(accountId)
        if (isRefused && this.#holds.get(accountId) === hold) this.#holds.delete(accountId)
        hold.reading -= 1
        if (isRefused) this.#readLater(read)
        else if (hold.isLost) this.#waiting.push(read)
        else read.resolve(this.#content(accountId, hold, rows.get(id)))
      }
    } catch (error) {
      // Which locks the session has is not known.
      this.#loseHolds()
      this.#connection.reset()
      const isPassing = isLostConnection(error) || sqlStateOf(error) === NOT_PREPARED
      for (const { read } of batch.reads) {
        read.failures += 1
        if (isPassing && read.failures < ATTEMPTS_MAX) this.#waiting.push(read)
        else read.reject(error)
      }
    }
  }

  /** An erasure has the lock or waits for it. */
  #readLater(read: Read): void {
    if (performance.now() < read.startedAtMs + READ_MAX_MS)
      setTimeout(() => this.#enqueue(read), HOLD_RETRY_MS)
    else read.reject(new Error('an erasure of the account has not ended'))
  }

  async #send({ reads, toHold, toRenew, toRelease }: Batch) {
    const deliveries = reads.map(({ read }) => read.delivery)
    const keys = [
      int8Array(deliveries.map(({ accountId }) => accountId)),
      int8Array(deliveries.map(({ id }) => id)),
    ]
    const isPresent = (ids: bigint[]) => ids.length > 0
    const statements: BoundStatement[] = []
    const ofAccounts = (statement: Statement, ids: bigint[]) => {
      if (isPresent(ids)) statements.push({ statement, values: [int8Array(ids)] })
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

  /** An erasure waits for the others, so nothing joins them. */
  #renew(accountIds: bigint[], renewed: Set<bigint>): void {
    for (const accountId of accountIds) {
      const hold = this.#holds.get(accountId)
      if (hold !== undefined)
        hold.joinUntilMs = renewed.has(accountId) ? performance.now() + HOLD_JOINED_MS : 0
    }
  }

  #content(accountId: bigint, hold: Hold, row: ContentRow | undefined): HeldContent | undefined {
    if (row === undefined) {
      this.#endHold(accountId, hold)
      return undefined
    }
    const content: HeldContent = {
      row,
      release: () => {
        if (hold.contents.delete(content)) this.#endHold(accountId, hold)
      },
      onLost: () => undefined,
    }
    hold.contents.add(content)
    return content
  }

  #endHold(accountId: bigint, hold: Hold): void {
    if (hold.contents.size > 0 || hold.reading > 0 || hold.isLost) return
    this.#holds.delete(accountId)
    this.#released.push(accountId)
    this.#runSoon()
  }

  #loseHolds(): void {
    this.#released = []
    const holds = [...this.#holds.values()]
    this.#holds.clear()
    for (const hold of holds) {
      hold.isLost = true
      for (const { onLost } of hold.contents) onLost()
    }
    if (this.#waiting.length > 0) this.#runSoon()
  }
}

/** bigint[] of a result of pg. */
const accountsIn = ([row]: Row[]): Set<bigint> => new Set(((row?.held ?? []) as string[]).map(BigInt))
