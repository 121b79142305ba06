/**
 * What contents on their way to endpoints take: the locks of their accounts, and memory.
 *
 * This process holds an account's lock while it reads and writes contents of the account (decision 46). A hold is one lock:
 *
 * 1. Opened: the next batch takes the lock before its reads. If an erasure has the lock or waits for it, the hold is refused.
 * 2. Joined: a session that has a lock gets it again without queueing, so erasures would never get it. Therefore a batch checks
 *    every HOLD_JOINED_MS whether an erasure waits. If one does, the hold is closed, and no read joins it.
 * 3. Released: after the last content was written, by the next batch, or after HOLD_JOINED_MS unless an erasure waits.
 */
import type { ContentRow } from './backlog.ts'

/** Deliveries may join for this long while an erasure waits. The erasure also waits for the write of the last one: see post.ts. */
const HOLD_JOINED_MS = 20

/** Has no reference to the content, which would otherwise stay in memory until the response. */
interface Writing {
  stop: () => void
}

export interface Hold {
  readonly accountId: bigint
  joinUntilMs: number
  /** Reads and writes in progress. */
  users: number
  /** closed: an erasure waits, so no read may join; refused: an erasure was first; lost: the session has ended */
  state: 'open' | 'closed' | 'refused' | 'lost'
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
  readonly #writings = new Set<Writing>()
  #changes = noChanges()
  #timer: NodeJS.Timeout | null = null

  /** @param onRelease is called when locks must be released; then more reads may be possible */
  constructor(onRelease: () => void) {
    this.#onRelease = onRelease
  }

  get hasReleases(): boolean {
    return this.#changes.toRelease.length > 0
  }

  /** Begins a read. Returns null if an erasure of the account waits. */
  join(accountId: bigint): Hold | null {
    const nowMs = performance.now()
    let hold = this.#holds.get(accountId)
    if (hold?.state === 'closed') return null
    if (hold === undefined) {
      hold = { accountId, joinUntilMs: nowMs + HOLD_JOINED_MS, users: 0, state: 'open' }
      this.#holds.set(accountId, hold)
      this.#changes.toHold.push(hold)
    } else if (hold.joinUntilMs < nowMs) {
      hold.joinUntilMs = nowMs + HOLD_JOINED_MS
      this.#changes.toRenew.push(hold)
    }
    hold.users += 1
    return hold
  }

  /** Ends a read or a write. */
  leave(hold: Hold): void {
    hold.users -= 1
    if (hold.users > 0 || hold.state === 'refused' || hold.state === 'lost') return
    this.#holds.delete(hold.accountId)
    this.#changes.toRelease.push(hold.accountId)
    if (hold.state === 'closed') this.#onRelease()
    else this.#timer ??= setTimeout(() => this.#releaseIdle(), HOLD_JOINED_MS)
  }

  /** Releases of locks that no erasure waits for share a batch. */
  #releaseIdle(): void {
    this.#timer = null
    if (this.hasReleases) this.#onRelease()
  }

  /** Turns a read into a write, which lasts until `end` is called. `end` may be called more than once. */
  beginWriting(hold: Hold): { writing: Writing; end: () => void } {
    const writing: Writing = { stop: () => undefined }
    this.#writings.add(writing)
    const end = () => {
      if (this.#writings.delete(writing)) this.leave(hold)
    }
    return { writing, end }
  }

  takeChanges(): LockChanges {
    const changes = this.#changes
    this.#changes = noChanges()
    return changes
  }

  /** @param held accounts whose lock was taken @param renewed accounts for which no erasure waits */
  noteChanges({ toHold, toRenew }: LockChanges, held: Set<bigint>, renewed: Set<bigint>): void {
    for (const hold of toRenew)
      if (hold.state === 'open' && !renewed.has(hold.accountId)) hold.state = 'closed'
    for (const hold of toHold) {
      if (hold.state !== 'open' || held.has(hold.accountId)) continue
      hold.state = 'refused'
      if (this.#holds.get(hold.accountId) === hold) this.#holds.delete(hold.accountId)
    }
  }

  /** Call it when the session has ended, and all locks with it. */
  lose(): void {
    for (const hold of this.#holds.values()) hold.state = 'lost'
    this.#holds.clear()
    this.#changes = noChanges()
    for (const { stop } of this.#writings) stop()
    this.#writings.clear()
  }
}

// Limits the memory of contents from their read until the kernel has their bodies. The size of a content is not known before it is
// read, so a read reserves the size of the largest recent content.

/** Reads of unexpected size may exceed it by one content each: 3 batches × 32 reads at most. */
const CONTENT_MAX_BYTES = 64 * 1024 * 1024
/** Endpoints that do not respond quickly may hold a body for a second, so they leave the other half free. */
const UNPROVEN_MAX_BYTES = CONTENT_MAX_BYTES / 2
/** A delivery of LINE has a few KiB. */
const EXPECTED_MIN_BYTES = 16 * 1024
/** The text from the database, and the body that is built from it. */
const COPIES = 2

export interface Reservation {
  readonly isProven: boolean
  bytes: number
}

export class ContentBudget {
  #bytes = 0
  #unprovenBytes = 0
  #expectedBytes = EXPECTED_MIN_BYTES

  /** Returns null if the read must wait until other contents have been written. */
  reserve(isProven: boolean): Reservation | null {
    const isFull = isProven
      ? this.#bytes >= CONTENT_MAX_BYTES
      : this.#bytes >= CONTENT_MAX_BYTES || this.#unprovenBytes >= UNPROVEN_MAX_BYTES
    if (isFull) return null
    const reservation = { isProven, bytes: 0 }
    this.#resize(reservation, this.#expectedBytes)
    return reservation
  }

  /** Call it when the content has been read. */
  settle(reservation: Reservation, { events, data }: Pick<ContentRow, 'events' | 'data'>): void {
    const bytes = ((events?.length ?? 0) + (data?.length ?? 0)) * COPIES
    this.#expectedBytes = Math.max(EXPECTED_MIN_BYTES, bytes, Math.floor(this.#expectedBytes * 0.9))
    this.#resize(reservation, bytes)
  }

  /** May be called more than once. */
  end(reservation: Reservation): void {
    this.#resize(reservation, 0)
  }

  #resize(reservation: Reservation, bytes: number): void {
    this.#bytes += bytes - reservation.bytes
    if (!reservation.isProven) this.#unprovenBytes += bytes - reservation.bytes
    reservation.bytes = bytes
  }
}
