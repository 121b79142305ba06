/**
 * Bodies are read as bytes, whatever their content type: signatures are over bytes, and the protected routes
 * must know who calls before they judge what was sent.
 */
import { isUtf8 } from 'node:buffer'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { AppError } from '../errors.ts'

/** Bytes. LINE escapes every character beyond ASCII (6 bytes each), so a batch of long texts needs room. */
export const BODY_MAX_BYTES = 1024 * 1024

const BYTES = 'application/octet-stream'
const EMPTY = Buffer.alloc(0)

declare module 'fastify' {
  interface FastifyRequest {
    /** the content-type header as it was sent */
    contentType: string | undefined
  }
}

export function readBodiesAsBytes(app: FastifyInstance): void {
  app.decorateRequest('contentType', undefined)
  // Fastify refuses a content type that it cannot read before any handler runs: too early for us.
  app.addHook('onRequest', (request, _reply, done) => {
    request.contentType = request.headers['content-type']
    request.raw.headers['content-type'] = BYTES
    done()
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(BYTES, { parseAs: 'buffer', bodyLimit: BODY_MAX_BYTES }, (_request, body, done) =>
    done(null, body),
  )
}

/** The bytes of the body, empty if there is none. Compressed bodies are refused. */
export function bodyBytes(request: FastifyRequest): Buffer {
  const encoding = request.headers['content-encoding']?.toLowerCase() ?? ''
  const transfer = request.headers['transfer-encoding']?.toLowerCase() ?? ''
  if (!['', 'identity'].includes(encoding) || !['', 'chunked'].includes(transfer)) {
    throw new AppError('unsupported_encoding')
  }
  return Buffer.isBuffer(request.body) ? request.body : EMPTY
}

/** The parsed body. Throws `bad_request` for anything that is no JSON text. */
export function parseJson(body: Buffer | string): unknown {
  try {
    return JSON.parse(body.toString()) as unknown
  } catch {
    throw new AppError('bad_request', { message: 'The body is not valid JSON' })
  }
}

/** The parsed body of a client that can mend it. Other encodings would come out as other words, without a fault. */
export function parseUtf8Json(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new AppError('bad_request', { message: 'The body is not in UTF-8' })
  return parseJson(bytes)
}

/** True for a JSON object, that is, neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
