/**
 * Limits the memory of contents from their read until the kernel has their bodies. The size of a content is not known before it is
 * read, so a read reserves the size of the largest recent content.
 */
import type { ContentRow } from './backlog.ts'

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
