/** Reads the body of a request into one buffer, and takes what it holds from a budget. */
import type { IncomingMessage } from 'node:http'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import type { BodyBudget, HeldBody } from './body-budget.ts'

/** Smaller bodies take less than 0.5 ms of work, and do not wait for a turn. */
const LARGE_BODY_BYTES = 64 * 1024
/** Bytes of the first buffer, if the body may be as long: two pages of memory. */
const GROWING_MIN_BYTES = 8 * 1024

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Returns what the body holds, until the caller releases it. Null: there was no room. Calls `done` once, with `too_many_bodies` if the
 * body is cut off.
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
  // The client disconnected during an earlier hook: nothing would release what the body holds.
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
    // Most bodies are one piece. It is complete in the same turn of the event loop.
    if (piece.length !== declaredBytes && !held.grow(pieces.heldBytes)) refuse(tooManyBodies())
  }
  const stopReading = () => payload.off('data', read).off('end', end).off('error', fail)
  const end = () => {
    stopReading()
    const body = pieces.join()
    if (!held.complete(body)) return refuse(tooManyBodies())
    if (body.length <= LARGE_BODY_BYTES) return finish(null, body)
    // Nobody waits for the body of a client that has disconnected.
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
 * Large bodies take turns: one is handled in each turn of the event loop. Checking, parsing and encoding 1 MiB takes 10 ms, and up to
 * 100 ms if it is hostile, so that 32 bodies that are complete at the same time would hold up everybody else for seconds.
 */
export class LargeBodyTurns {
  readonly #waiting: Array<() => void> = []
  readonly #handleNext = () => {
    const handle = this.#waiting.shift()
    if (this.#waiting.length > 0) setImmediate(this.#handleNext)
    handle?.()
  }

  /** Calls it in a later turn of the event loop, after those that were added before. */
  add(handle: () => void): void {
    this.#waiting.push(handle)
    if (this.#waiting.length === 1) setImmediate(this.#handleNext)
  }
}

/**
 * The bytes of a body, copied into one buffer that grows. A piece is a part of what was read from the connection at a time, and would
 * keep all of that in memory. A sender can make a million pieces of one byte.
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

  /** The whole body. The pieces are forgotten. */
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
