/** The shape of every error response. */
import { randomUUID } from 'node:crypto'
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError, ERRORS } from '../errors.ts'
import { UNKNOWN_ROUTE } from '../observability/facts.ts'
import { bareAddress } from './rate-limit.ts'
import { publishFinishedRequest, recordAbort, SAFE_HEADERS } from './responses.ts'
import { type Static, Type } from './typebox.ts'

/** Whether the error is the fault of the request, and not that of the service or its database. */
export const isRefusal = (error: unknown): error is AppError =>
  error instanceof AppError && error.status < 500

export const ErrorEnvelopeSchema = Type.Object(
  {
    statusCode: Type.Integer(),
    error: Type.String(),
    message: Type.String(),
    details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
    requestId: Type.String(),
  },
  {
    examples: [
      {
        statusCode: 400,
        error: 'Bad Request',
        message: 'The input is invalid',
        details: [{ path: 'limit', message: 'must be a whole number from 1 to 200' }],
        requestId: '0b7f8a0e-4a7e-4a4b-8f57-3f0f0c6f5a11',
      },
    ],
  },
)

type ErrorEnvelope = Static<typeof ErrorEnvelopeSchema>

export function errorEnvelope(error: AppError, requestId: string): ErrorEnvelope {
  const { status: statusCode, message, details } = error
  return {
    statusCode,
    error: STATUS_CODES[statusCode] ?? 'Error',
    message,
    ...(details && { details }),
    requestId,
  }
}

/** A 401 must name a scheme. No browser knows this one, so none asks for a password. */
const CHALLENGE = 'OA-Audience realm="oa-audience"'

/** An unexpected error is `internal`: only the log has its details. */
export function sendError(error: Error, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const appError = asAppError(error)
  const { status } = appError
  if (status >= 500) logFailure(error, appError, request)
  if (appError.retryAfterSeconds !== undefined) reply.header('retry-after', appError.retryAfterSeconds)
  if (status === 401) reply.header('www-authenticate', CHALLENGE)
  return reply.headers(SAFE_HEADERS).code(status).send(errorEnvelope(appError, request.id))
}

/**
 * Only a bug is logged with its stack. A database that is down fails thousands of requests a second. The protected routes then
 * respond with `internal`, whose cause is the database's AppError.
 */
function logFailure(error: Error, { code }: AppError, request: FastifyRequest): void {
  const expected = error.cause instanceof AppError ? error.cause : null
  const isBug = code === 'internal' && expected === null
  const fault = { requestId: request.id, code, ...describeFault(expected ?? error, isBug) }
  request.log[isBug ? 'error' : 'warn'](fault, 'request failed')
}

function asAppError(error: Error & { code?: string; statusCode?: number }): AppError {
  if (error instanceof AppError) return error
  if (error instanceof UnreadableSecret) return new AppError('secret_unreadable', { cause: error })
  // Fastify rejects these before any handler runs.
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return new AppError('body_too_large')
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return new AppError('unsupported_media_type')
  const status = error.statusCode ?? 500
  if (status >= 400 && status < 500) return new AppError('bad_request', { cause: error })
  return new AppError('internal', { cause: error })
}

/** The loggable part of an error. A database error's message and detail quote stored data, so they are left out. */
export function describeFault(error: Error, withStack: boolean): Record<string, unknown> {
  const cause = error.cause instanceof Error ? error.cause : error
  const { code } = cause as { code?: string }
  const fromDatabase = 'severity' in cause
  return {
    fault: cause.name,
    ...(code ? { faultCode: code } : {}),
    ...(fromDatabase ? {} : { faultMessage: cause.message }),
    ...(withStack ? { stack: (cause.stack ?? '').split('\n').slice(1, 6).join('\n') } : {}),
  }
}

// Responds to requests that reach no route and no hook: malformed HTTP, an undecodable path, an unsupported expectation.

declare module 'fastify' {
  interface FastifyInstance {
    /** counts a request that runs no hook and resolves with the refusal, if any; null without a rate limit */
    limitUnroutable: ((request: FastifyRequest, reply: FastifyReply) => Promise<AppError | undefined>) | null
  }
}

export async function handleFrameworkError(
  app: FastifyInstance,
  error: Error,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const refusal = await app.limitUnroutable?.(request, reply)
  sendError(refusal ?? error, request, reply)
  publishUnroutable(app, request.id, reply.statusCode, request.ip)
}

export function refuseExpectation(
  app: FastifyInstance,
  { socket }: IncomingMessage,
  response: ServerResponse,
): void {
  const requestId = randomUUID()
  const { headers, body } = unroutableResponse(417, requestId)
  publishUnroutable(app, requestId, 417, socket.remoteAddress)
  response.writeHead(417, headers).end(body)
}

const STATUS_OF_CLIENT_ERROR: Record<string, number> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
}

/** Responds to bytes that Node cannot parse as a request, and to requests that exceed its time limits. */
export function handleClientError(
  app: FastifyInstance,
  error: Error & { code?: string },
  socket: Socket,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const status = STATUS_OF_CLIENT_ERROR[error.code ?? ''] ?? 400
  const refuse = (incomplete: ServerResponse | null) => {
    const requestId = randomUUID()
    if (incomplete) recordAbort(incomplete, status, requestId)
    else publishUnroutable(app, requestId, status, socket.remoteAddress)
    socket.end(unroutableBytes(status, requestId), () => socket.destroy())
  }
  // A complete request before this one on the same connection may already be accepted, so its response is sent first. An
  // incomplete one never gets its own response.
  const { _httpMessage: pending = null } = socket as { _httpMessage?: ServerResponse | null }
  if (pending?.req.complete) pending.once('close', () => socket.destroy()).once('finish', () => refuse(null))
  else refuse(pending)
}

function publishUnroutable(
  app: FastifyInstance,
  requestId: string,
  status: number,
  ip: string | undefined,
): void {
  publishFinishedRequest(app, {
    request: null,
    requestId,
    route: UNKNOWN_ROUTE,
    status,
    seconds: null,
    ip: ip && bareAddress(ip),
  })
}

function unroutableBytes(status: number, requestId: string): string {
  const { reason, headers, body } = unroutableResponse(status, requestId)
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return [`HTTP/1.1 ${status} ${reason}`, ...lines, '', body].join('\r\n')
}

function unroutableResponse(statusCode: number, requestId: string) {
  const reason = STATUS_CODES[statusCode] ?? 'Bad Request'
  const message = statusCode === 400 ? ERRORS.bad_request[1] : reason
  const body = JSON.stringify({ statusCode, error: reason, message, requestId } satisfies ErrorEnvelope)
  const headers = {
    ...SAFE_HEADERS,
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  }
  return { reason, headers, body }
}
