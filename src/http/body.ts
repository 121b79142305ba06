/**
 * Reads bodies of any content type as bytes. Signatures cover the raw bytes, and the protected routes must authenticate the client
 * before they parse its body.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import zlib from 'node:zlib'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import { BodyBudget, type HeldBody } from './body-budget.ts'
import { createClientKey } from './rate-limit.ts'

/** gzip compresses batches of similar events to a fiftieth. */
const GZIP_RATIO_MAX = 200

const BYTES = 'application/octet-stream'
const EMPTY: Buffer = Buffer.alloc(0)

/** Budget of all routes without one of their own. They read a body only for authenticated clients and operators. */
const OTHER_BODIES_MAX_BYTES = 16 * 1024 * 1024

declare module 'fastify' {
  interface FastifyContextConfig {
    /** memory for the bodies of this route; by default, the server's other routes share a budget */
    bodies?: BodyBudget
  }
  interface FastifyInstance {
    largeBodyTurns: LargeBodyTurns
  }
  interface FastifyRequest {
    /** null: the request has no body, or it was refused */
    heldBody: HeldBody | null
    /** the content-type header as the client sent it */
    contentType: string | undefined
  }
}

export function readBodiesAsBytes(app: FastifyInstance): void {
  app.decorate('largeBodyTurns', new LargeBodyTurns())
  app.decorateRequest('contentType', undefined)
  app.decorateRequest('heldBody', null)
  // This also runs when the client disconnects.
  app.requestObservers.push(({ request }) => request?.heldBody?.release())
  const others = new BodyBudget(OTHER_BODIES_MAX_BYTES)
  const { largeBodyTurns: turns } = app
  const addressOf = createClientKey()
  // Fastify rejects an unknown content type before the guard runs, so every request claims the same type.
  app.addHook('onRequest', (request, _reply, done) => {
    request.contentType = request.headers['content-type']
    request.raw.headers['content-type'] = BYTES
    done()
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(BYTES, (request, payload, done) => {
    if (request.is404) return done(new AppError('unknown_route'))
    const budget = request.routeOptions.config.bodies ?? others
    const declaredBytes = Number(request.headers['content-length'] ?? Number.NaN)
    request.heldBody = readBody(payload, declaredBytes, { budget, turns }, addressOf(request), done)
  })
}

/** Returns an empty buffer without a body. Throws `unsupported_encoding` for a compressed body. */
export function bodyBytes(request: FastifyRequest): Buffer {
  return bytesIn(request, ['', 'identity'])
}

export const receivedBytes = ({ body }: FastifyRequest): number => (Buffer.isBuffer(body) ? body.length : 0)

/**
 * Like bodyBytes, but decompresses gzip. Throws `body_too_large` if the content is larger than BODY_MAX_BYTES or GZIP_RATIO_MAX
 * times the body, and `bad_request` if it is not valid gzip. 1 MiB takes 1 to 4 ms in a separate turn. The asynchronous function
 * would block one of libuv's four threads, which file access and DNS lookups need.
 */
export async function decodedBytes(request: FastifyRequest): Promise<Buffer> {
  const body = bytesIn(request, ['', 'identity', 'gzip'])
  if (encodingOf(request) !== 'gzip') return body
  await new Promise<void>((resolve) => request.server.largeBodyTurns.add(resolve))
  try {
    return zlib.gunzipSync(body, { maxOutputLength: Math.min(BODY_MAX_BYTES, body.length * GZIP_RATIO_MAX) })
  } catch (error) {
    if ((error as { code?: string }).code === 'ERR_BUFFER_TOO_LARGE') throw new AppError('body_too_large')
    throw new AppError('bad_request', { message: 'The body is not valid gzip' })
  }
}

const encodingOf = ({ headers }: FastifyRequest) => headers['content-encoding']?.toLowerCase() ?? ''

function bytesIn(request: FastifyRequest, encodings: string[]): Buffer {
  const transfer = request.headers['transfer-encoding']?.toLowerCase() ?? ''
  if (!encodings.includes(encodingOf(request)) || !['', 'chunked'].includes(transfer)) {
    throw new AppError('unsupported_encoding')
  }
  return Buffer.isBuffer(request.body) ? request.body : EMPTY
}

export function parseJson(body: Buffer | string): unknown {
  try {
    return JSON.parse(body.toString()) as unknown
  } catch {
    throw new AppError('bad_request', { message: 'The body is not valid JSON' })
  }
}

/** Also throws `bad_request` for encodings other than UTF-8, which would be stored as garbled text. */
export function parseUtf8Json(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new AppError('bad_request', { message: 'The body is not in UTF-8' })
  return parseJson(bytes)
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Handling a smaller body takes less than 0.5 ms, so it does not wait for a turn. */
const LARGE_BODY_BYTES = 64 * 1024
/** Size of the first buffer, unless the body is shorter: two pages of memory. */
const GROWING_MIN_BYTES = 8 * 1024

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Returns the reserved memory, which the caller releases, or null if the body was refused. Calls `done` once, with `too_many_bodies`
 * if the body is cut off.
 */
function readBody(
  payload: IncomingMessage,
  declaredBytes: number,
  { budget, turns }: { budget: BodyBudget; turns: LargeBodyTurns },
  address: string,
  done: Done,
): HeldBody | null {
  const pieces = new Pieces(Number.isNaN(declaredBytes) ? BODY_MAX_BYTES : declaredBytes)
  if (declaredBytes > BODY_MAX_BYTES) {
    done(new AppError('body_too_large'))
    return null
  }
  // If the client disconnected during an earlier hook, nothing would release the memory.
  if (payload.destroyed || payload.socket.destroyed) {
    done(new AppError('bad_request', { message: 'The body is incomplete' }))
    return null
  }
  const held = budget.open(address, () => refuse(tooManyBodies()))
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
    if (body.length <= LARGE_BODY_BYTES) return done(null, body)
    // `content` is null if the client has disconnected meanwhile.
    turns.add(() => done(held.content === null ? incomplete() : null, held.content ?? undefined))
  }
  const refuse = (error: Error) => {
    stopReading()
    held.release()
    pieces.clear()
    done(error)
  }
  const fail = () => refuse(incomplete())
  payload.on('data', read).on('end', end).on('error', fail)
  return held
}

/**
 * Handles one large body per turn of the event loop. Checking, parsing and encoding 1 MiB takes 10 ms, or up to 100 ms if it is
 * hostile. 32 bodies that complete at the same time would block all other requests for seconds.
 */
class LargeBodyTurns {
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

/** Copies the pieces of a body into one growing buffer, because a sender can make a million pieces of one byte. */
class Pieces {
  length = 0
  #buffer: Buffer = EMPTY
  readonly #maxBytes: number

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  get heldBytes(): number {
    return this.#buffer.length
  }

  add(piece: Buffer): void {
    const length = this.length + piece.length
    // Most bodies are one piece, which has memory of its own.
    if (piece.length === this.#maxBytes) this.#buffer = piece
    else if (length > this.#buffer.length) {
      const bytes = Math.min(this.#maxBytes, Math.max(GROWING_MIN_BYTES, 2 * length))
      const grown = Buffer.allocUnsafeSlow(bytes)
      this.#buffer.copy(grown, 0, 0, this.length)
      this.#buffer = grown
    }
    if (this.#buffer !== piece) piece.copy(this.#buffer, this.length)
    this.length = length
  }

  join(): Buffer {
    const isFull = this.length === this.#buffer.length
    const body = isFull ? this.#buffer : Buffer.from(this.#buffer.subarray(0, this.length))
    this.clear()
    return body
  }

  clear(): void {
    this.#buffer = EMPTY
  }
}

function incomplete(): AppError {
  return new AppError('bad_request', { message: 'The body is incomplete' })
}

function tooManyBodies(): AppError {
  return new AppError('too_many_bodies', { retryAfterSeconds: 1 })
}
