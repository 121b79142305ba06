/** Reads the body of a request into one buffer, and takes what it holds from a budget. */
import type { IncomingMessage } from 'node:http'
import { AppError } from '../errors.ts'
import { BODY_MAX_BYTES } from '../limits.ts'
import type { BodyBudget, HeldBody } from './body-budget.ts'

/** Smaller bodies take less than 0.5 ms of work, and do not wait for a turn. */
const LARGE_BODY_BYTES = 64 * 1024
/** Of a buffer that collects small pieces: two pages of memory. */
const COLLECTING_BYTES = 8 * 1024

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
  const pieces = new Pieces()
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
 * The pieces of a body. A piece is a part of what was read from the connection at a time, and keeps all of that in memory. If it is
 * less than half of that, or small, it is copied: a sender can make a million pieces of one byte.
 */
class Pieces {
  length = 0
  heldBytes = 0
  #pieces: Buffer[] = []
  /** Collects small pieces. */
  #collecting: Buffer | null = null
  #collected = 0

  add(piece: Buffer): void {
    this.length += piece.length
    const isMostOfItsMemory = 2 * piece.length > piece.buffer.byteLength
    if (isMostOfItsMemory && (this.#pieces.length === 0 || piece.length > COLLECTING_BYTES)) {
      this.#closeCollecting()
      this.#pieces.push(piece)
      this.heldBytes += piece.buffer.byteLength
    } else {
      this.#collect(piece)
    }
  }

  /** The whole body. The pieces are forgotten. */
  join(): Buffer {
    this.#closeCollecting()
    const [first] = this.#pieces
    const body = this.#pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.#pieces)
    this.clear()
    return body
  }

  clear(): void {
    this.#pieces = []
    this.#collecting = null
  }

  #collect(piece: Buffer): void {
    if (this.#collecting === null || this.#collected + piece.length > this.#collecting.length) {
      this.#closeCollecting()
      this.#collecting = Buffer.allocUnsafeSlow(Math.max(COLLECTING_BYTES, piece.length))
      this.heldBytes += this.#collecting.length
    }
    this.#collected += piece.copy(this.#collecting, this.#collected)
  }

  #closeCollecting(): void {
    if (this.#collecting !== null) this.#pieces.push(this.#collecting.subarray(0, this.#collected))
    this.#collecting = null
    this.#collected = 0
  }
}

function incomplete(): AppError {
  return new AppError('bad_request', { message: 'The body is incomplete' })
}

function tooManyBodies(): AppError {
  return new AppError('too_many_bodies', { retryAfterSeconds: 1 })
}
