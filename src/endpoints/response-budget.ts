/**
 * Limits the work of the HTTP parser for a response. A socket may deliver 64 KiB at once: if they are `103` responses, one-byte chunks
 * or empty lines, parsing them blocks the event loop for up to 28 ms. So bytes and lines are counted before the parser sees them.
 * Bytes beyond the budget are overwritten, and the connection is closed. A long body is not a failure, because only the status and
 * Retry-After are needed.
 */
import type { Socket } from 'node:net'
import type { ContentRow } from './backlog.ts'

/** Node.js limits headers to 16 KiB. Bodies of webhook receivers have a few bytes, error pages a few KiB. */
const RESPONSE_MAX_BYTES = 20 * 1024
/** Lines of headers, of chunk sizes and of bodies: 256 one-byte chunks take 0.7 ms. */
const RESPONSE_MAX_LINES = 512
/** Each 1xx response takes 15 µs. */
const STATUS_LINES_MAX = 10
const STATUS_LINE_1XX = /^HTTP\/\d\.\d 1/
/** Session tickets. Servers send two. */
const TLS_TICKETS_MAX = 8
const LINE_FEED = 10

interface Budget {
  bytes: number
  lines: number
  statusLines: number
  exceeded: () => void
}

/** The budget of the request in flight. Without one, no byte may arrive. */
const budgets = new WeakMap<Socket, Budget>()
const watched = new WeakSet<Socket>()

/** Returns a function that ends the budget. @param exceeded is called before the parser sees bytes beyond the budget */
export function limitResponse(socket: Socket, exceeded: () => void): () => void {
  const budget = {
    bytes: RESPONSE_MAX_BYTES,
    lines: RESPONSE_MAX_LINES,
    statusLines: STATUS_LINES_MAX,
    exceeded,
  }
  budgets.set(socket, budget)
  if (!watched.has(socket)) watch(socket)
  return () => {
    if (budgets.get(socket) === budget) budgets.delete(socket)
  }
}

function watch(socket: Socket): void {
  watched.add(socket)
  socket.prependListener('data', (chunk: Buffer) => {
    const budget = budgets.get(socket)
    const allowed = budget === undefined ? 0 : spend(budget, chunk)
    if (allowed === chunk.length) return
    chunk.fill(0, allowed)
    if (budget === undefined) socket.destroy()
    else budget.exceeded()
  })
  let tickets = 0
  socket.on('session', () => {
    tickets += 1
    if (tickets > TLS_TICKETS_MAX) socket.destroy()
  })
}

/** Returns the number of bytes of the chunk that are within the budget. */
function spend(budget: Budget, chunk: Buffer): number {
  const length = Math.min(chunk.length, budget.bytes)
  budget.bytes -= length
  for (let at = chunk.indexOf(LINE_FEED); at >= 0 && at < length; at = chunk.indexOf(LINE_FEED, at + 1)) {
    budget.lines -= 1
    if (STATUS_LINE_1XX.test(chunk.toString('latin1', at + 1, at + 11))) budget.statusLines -= 1
    if (budget.lines < 0 || budget.statusLines < 0) return at
  }
  return length
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
