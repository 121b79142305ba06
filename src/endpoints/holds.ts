/**
 * The locks of accounts that this process holds while it reads and writes their contents (decision 46). A hold is one lock, shared
 * by deliveries of its account:
 *
 * 1. Opened: the next batch takes the lock before its reads. If an erasure has the lock or waits for it, the hold is refused.
 * 2. Joined: a session that has a lock gets it again without queueing, so erasures would never get it. Therefore a batch checks
 *    every HOLD_JOINED_MS whether an erasure waits. If one does, the hold is closed, and no read joins it.
 * 3. Released: a closed hold when its last content is written, an unused one after HOLD_JOINED_MS.
 */

/** Deliveries may join for this long while an erasure waits. The erasure also waits for the write of the last one: see post.ts. */
const HOLD_JOINED_MS = 20

/** Has no reference to the content, which would otherwise stay in memory until the response. */
interface Writing {
  stop: () => void
}

export interface Hold {
  readonly accountId: bigint
  joinUntilMs: number
  /** Reads in progress. */
  reading: number
  writings: Set<Writing>
  /** An erasure waits, so no read may join. */
  isClosed: boolean
  /** The session did not get the lock, because an erasure has it or waits for it. */
  isRefused: boolean
  /** The session has ended. */
  isLost: boolean
}

export interface LockChanges {
  toHold: Hold[]
  toRenew: Hold[]
  toRelease: bigint[]
}

const noChanges = (): LockChanges => ({ toHold: [], toRenew: [], toRelease: [] })

export class Holds {
  readonly #onRelease: () => void
  readonly #holds = new Map<bigint, Hold>()
  #changes = noChanges()
  #idleTimer: NodeJS.Timeout | null = null

  /** @param onRelease is called when a lock must be released; then more reads may be possible */
  constructor(onRelease: () => void) {
    this.#onRelease = onRelease
  }

  get hasReleases(): boolean {
    return this.#changes.toRelease.length > 0
  }

  /** Whether an erasure of the account waits, so no read may join. */
  isClosed(accountId: bigint): boolean {
    return this.#holds.get(accountId)?.isClosed === true
  }

  /** Begins a read. */
  join(accountId: bigint): Hold {
    const nowMs = performance.now()
    const hold = this.#holds.get(accountId) ?? this.#open(accountId, nowMs)
    if (hold.joinUntilMs < nowMs) {
      hold.joinUntilMs = nowMs + HOLD_JOINED_MS
      this.#changes.toRenew.push(hold)
    }
    hold.reading += 1
    return hold
  }

  takeChanges(): LockChanges {
    const changes = this.#changes
    this.#changes = noChanges()
    return changes
  }

  /** @param held accounts whose lock was taken @param renewed accounts for which no erasure waits */
  noteChanges({ toHold, toRenew }: LockChanges, held: Set<bigint>, renewed: Set<bigint>): void {
    for (const hold of toRenew) if (!renewed.has(hold.accountId)) hold.isClosed = true
    for (const hold of toHold) {
      if (held.has(hold.accountId)) continue
      hold.isRefused = true
      if (this.#holds.get(hold.accountId) === hold) this.#holds.delete(hold.accountId)
    }
  }

  endRead(hold: Hold): void {
    hold.reading -= 1
    this.#end(hold)
  }

  /** Turns a read into a writing, which lasts until `end` is called. `end` may be called more than once. */
  beginWriting(hold: Hold): { writing: Writing; end: () => void } {
    const writing: Writing = { stop: () => undefined }
    hold.reading -= 1
    hold.writings.add(writing)
    const end = () => {
      if (hold.writings.delete(writing)) this.#end(hold)
    }
    return { writing, end }
  }

  /** Call it when the session has ended, and all locks with it. */
  lose(): void {
    const holds = [...this.#holds.values()]
    this.#holds.clear()
    this.#changes = noChanges()
    for (const hold of holds) {
      hold.isLost = true
      for (const { stop } of hold.writings) stop()
    }
  }

  #open(accountId: bigint, nowMs: number): Hold {
    const hold: Hold = {
      accountId,
      joinUntilMs: nowMs + HOLD_JOINED_MS,
      reading: 0,
      writings: new Set(),
      isClosed: false,
      isRefused: false,
      isLost: false,
    }
    this.#holds.set(accountId, hold)
    this.#changes.toHold.push(hold)
    return hold
  }

  /** Releases an unused lock if an erasure waits for it. Other locks are kept for a while, because they may be needed again soon. */
  #end(hold: Hold): void {
    if (!isUnused(hold)) return
    if (hold.isClosed) this.#release(hold)
    else this.#idleTimer ??= setTimeout(() => this.#releaseIdle(), HOLD_JOINED_MS)
  }

  #releaseIdle(): void {
    this.#idleTimer = null
    const nowMs = performance.now()
    for (const hold of this.#holds.values()) {
      if (isUnused(hold) && hold.joinUntilMs < nowMs) this.#release(hold)
      else this.#end(hold)
    }
  }

  #release({ accountId }: Hold): void {
    this.#holds.delete(accountId)
    this.#changes.toRelease.push(accountId)
    this.#onRelease()
  }
}

const isUnused = ({ writings, reading, isLost, isRefused }: Hold): boolean =>
  writings.size === 0 && reading === 0 && !isLost && !isRefused
