/**
 * The memory of contents between their read and the moment at which the kernel has their bodies. How large a content is shows
 * when it has been read, so a read reserves as much as the largest recent content had.
 */
import type { ContentRow } from './backlog.ts'

/** Texts and bodies in this process. Reads of unexpected size exceed it by one content each: 3 batches × 32 reads at most. */
const CONTENT_MAX_BYTES = 64 * 1024 * 1024
/** Contents of endpoints that do not answer quickly. They may keep a body for a second, so they leave the other half free. */
const UNPROVEN_MAX_BYTES = CONTENT_MAX_BYTES / 2
/** One delivery of LINE is some KiB. */
const EXPECTED_MIN_BYTES = 16 * 1024
/** The text that was read, and the body that is built from it. */
const COPIES = 2

export interface Reservation {
  readonly isProven: boolean
  bytes: number
}

export class ContentBudget {
  #bytes = 0
  #unprovenBytes = 0
  #expectedBytes = EXPECTED_MIN_BYTES

  /** Null: the content must wait until others have been written. */
  reserve(isProven: boolean): Reservation | null {
    const isFull = isProven
      ? this.#bytes >= CONTENT_MAX_BYTES
      : this.#bytes >= CONTENT_MAX_BYTES || this.#unprovenBytes >= UNPROVEN_MAX_BYTES
    if (isFull) return null
    const reservation = { isProven, bytes: 0 }
    this.#resize(reservation, this.#expectedBytes)
    return reservation
  }

  /** The content has been read. */
  settle(reservation: Reservation, { events, data }: Pick<ContentRow, 'events' | 'data'>): void {
    const bytes = ((events?.length ?? 0) + (data?.length ?? 0)) * COPIES
    this.#expectedBytes = Math.max(EXPECTED_MIN_BYTES, bytes, Math.floor(this.#expectedBytes * 0.9))
    this.#resize(reservation, bytes)
  }

  /** May be called again. */
  end(reservation: Reservation): void {
    this.#resize(reservation, 0)
  }

  #resize(reservation: Reservation, bytes: number): void {
    this.#bytes += bytes - reservation.bytes
    if (!reservation.isProven) this.#unprovenBytes += bytes - reservation.bytes
    reservation.bytes = bytes
  }
}
