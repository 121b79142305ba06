/** Reads the body of a request into one buffer, and takes what it holds from a budget. */
import type { IncomingMessage } from 'node:http'
import { AppError } from '../errors.ts'
import { BODY_MAX_BYTES } from '../limits.ts'
import type { BodyBudget, HeldBody } from './body-budget.ts'

const EMPTY = Buffer.alloc(0)
/** The first buffer of a body that arrives in several pieces. It doubles when it is full. */
const FIRST_BUFFER_BYTES = 4 * 1024

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Returns what the body holds, until the caller releases it. Null: there was no room. Calls `done` once, with `too_many_bodies` if the body is cut
 * off. Pieces are copied: a piece of one byte would keep some hundred bytes, and a sender can make a million of them.
 */
export function readBody(
  payload: IncomingMessage,
  declaredBytes: number,
  budget: BodyBudget,
  address: string,
  done: Done,
): HeldBody | null {
  let buffer = EMPTY
  let length = 0
  const finish = (error: Error | null, body?: Buffer) => {
    payload.off('data', read).off('end', end).off('error', fail)
    buffer = EMPTY
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
    if (length + piece.length > BODY_MAX_BYTES) return refuse(new AppError('body_too_large'))
    if (length + piece.length === declaredBytes && length === 0) {
      buffer = Buffer.concat([piece])
    } else if (length + piece.length > buffer.length) {
      const bytes = Math.min(
        BODY_MAX_BYTES,
        Math.max(FIRST_BUFFER_BYTES, 2 * buffer.length, length + piece.length),
      )
      if (!held.grow(bytes)) return refuse(tooManyBodies())
      const larger = Buffer.allocUnsafeSlow(bytes)
      buffer.copy(larger, 0, 0, length)
      buffer = larger
      piece.copy(buffer, length)
    } else {
      piece.copy(buffer, length)
    }
    length += piece.length
  }
  const end = () => {
    if (!held.complete(buffer.length)) return refuse(tooManyBodies())
    finish(null, buffer.subarray(0, length))
  }
  const refuse = (error: Error) => {
    held.release()
    finish(error)
  }
  const fail = () => refuse(new AppError('bad_request', { message: 'The body is incomplete' }))
  payload.on('data', read).on('end', end).on('error', fail)
  return held
}

function tooManyBodies(): AppError {
  return new AppError('too_many_bodies', { retryAfterSeconds: 1 })
}
