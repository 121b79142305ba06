/**
 * Reads bodies of any content type as bytes. Signatures cover the raw bytes, and the protected routes must authenticate the client
 * before they parse its body.
 */
import { isUtf8 } from 'node:buffer'
import zlib from 'node:zlib'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import { BodyBudget, type HeldBody } from './body-budget.ts'
import { LargeBodyTurns, readBody } from './body-reader.ts'
import { createClientKey } from './rate-limit-counter.ts'

/** gzip compresses batches of similar events to a fiftieth. */
const GZIP_RATIO_MAX = 200

const BYTES = 'application/octet-stream'
const EMPTY = Buffer.alloc(0)

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
    const budget = request.routeOptions.config.bodies ?? others
    const declaredBytes = Number(request.headers['content-length'] ?? Number.NaN)
    request.heldBody = readBody(payload, declaredBytes, { budget, turns }, addressOf(request), done)
  })
}

/** Returns an empty buffer without a body. Throws `unsupported_encoding` for a compressed body. */
export function bodyBytes(request: FastifyRequest): Buffer {
  return bytesIn(request, ['', 'identity'])
}

/** Number of bytes of the body as received, compressed or not. */
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

/** Throws `bad_request` for a body that is not valid JSON. */
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

/** Returns false for null and arrays. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
