/** Reads the body of a request into one buffer whose memory is taken from a budget. */
import type { IncomingMessage } from 'node:http'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import type { BodyBudget, HeldBody } from './body-budget.ts'

/** Handling a smaller body takes less than 0.5 ms, so it does not wait for a turn. */
const LARGE_BODY_BYTES = 64 * 1024
/** Size of the first buffer, unless the body is shorter: two pages of memory. */
const GROWING_MIN_BYTES = 8 * 1024

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Returns the reserved memory, which the caller releases, or null if the body was refused. Calls `done` once, with `too_many_bodies`
 * if the body is cut off.
 */
export function readBody(
  payload: IncomingMessage,
  declaredBytes: number,
  { budget, turns }: { budget: BodyBudget; turns: LargeBodyTurns },
  address: string,
  done: Done,
): HeldBody | null {
  const pieces = new Pieces(Number.isNaN(declaredBytes) ? BODY_MAX_BYTES : declaredBytes)
  const finish = (error: Error | null, body?: Buffer) => {
    stopReading()
    pieces.clear()
    done(error, body)
  }
  if (declaredBytes > BODY_MAX_BYTES) {
    done(new AppError('body_too_large'))
    return null
  }
  // If the client disconnected during an earlier hook, nothing would release the memory.
  if (payload.destroyed || payload.socket.destroyed) {
    done(new AppError('bad_request', { message: 'The body is incomplete' }))
    return null
  }
  const held = budget.open(address, () => finish(tooManyBodies()))
  if (held === null) {
    done(tooManyBodies())
    return null
  }
  const read = (piece: Buffer) => {
    if (pieces.length + piece.length > BODY_MAX_BYTES) return refuse(new AppError('body_too_large'))
    pieces.add(piece)
    // Most bodies are one piece, which is complete in the same turn of the event loop.
    if (piece.length !== declaredBytes && !held.grow(pieces.heldBytes)) refuse(tooManyBodies())
  }
  const stopReading = () => payload.off('data', read).off('end', end).off('error', fail)
  const end = () => {
    stopReading()
    const body = pieces.join()
    if (!held.complete(body)) return refuse(tooManyBodies())
    if (body.length <= LARGE_BODY_BYTES) return finish(null, body)
    // `content` is null if the client has disconnected meanwhile.
    turns.add(() => finish(held.content === null ? incomplete() : null, held.content ?? undefined))
  }
  const refuse = (error: Error) => {
    held.release()
    finish(error)
  }
  const fail = () => refuse(incomplete())
  payload.on('data', read).on('end', end).on('error', fail)
  return held
}

/**
 * Handles one large body per turn of the event loop. Checking, parsing and encoding 1 MiB takes 10 ms, or up to 100 ms if it is
 * hostile. 32 bodies that complete at the same time would block all other requests for seconds.
 */
export class LargeBodyTurns {
  readonly #waiting: Array<() => void> = []
  readonly #handleNext = () => {
    const handle = this.#waiting.shift()
    if (this.#waiting.length > 0) setImmediate(this.#handleNext)
    handle?.()
  }

  /** Calls `handle` in a later turn of the event loop, in the order of the calls of `add`. */
  add(handle: () => void): void {
    this.#waiting.push(handle)
    if (this.#waiting.length === 1) setImmediate(this.#handleNext)
  }
}

/**
 * Copies the pieces of a body into one growing buffer. A piece is a slice of a read buffer and would keep all of it in memory. A
 * sender can make a million pieces of one byte.
 */
class Pieces {
  length = 0
  #buffer = Buffer.alloc(0)
  readonly #maxBytes: number

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  get heldBytes(): number {
    return this.#buffer.length
  }

  add(piece: Buffer): void {
    const length = this.length + piece.length
    if (length > this.#buffer.length) {
      const bytes = Math.min(this.#maxBytes, Math.max(GROWING_MIN_BYTES, 2 * length))
      const grown = Buffer.allocUnsafeSlow(bytes)
      this.#buffer.copy(grown, 0, 0, this.length)
      this.#buffer = grown
    }
    piece.copy(this.#buffer, this.length)
    this.length = length
  }

  join(): Buffer {
    const isFull = this.length === this.#buffer.length
    const body = isFull ? this.#buffer : Buffer.from(this.#buffer.subarray(0, this.length))
    this.clear()
    return body
  }

  clear(): void {
    this.#buffer = Buffer.alloc(0)
  }
}

function incomplete(): AppError {
  return new AppError('bad_request', { message: 'The body is incomplete' })
}

function tooManyBodies(): AppError {
  return new AppError('too_many_bodies', { retryAfterSeconds: 1 })
}
