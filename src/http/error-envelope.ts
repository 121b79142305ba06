/** The one shape of every error, and the one table from error codes to HTTP statuses. */
import { STATUS_CODES } from 'node:http'
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import Type, { type Static } from 'typebox'
import { AppError, ERROR_MESSAGES, type ErrorCode } from '../errors.ts'

export const ERROR_STATUS: Record<ErrorCode, number> = {
  missing_credentials: 401,
  invalid_client: 401,
  caller_unknown: 401,
  erase_without_scope: 400,
  erase_unknown_member: 404,
  erase_stale: 412,
  erase_failed: 500,
  update_without_scope: 500,
  no_account_in_scope: 404,
  unknown_route: 404,
  unknown_member: 404,
  unknown_account: 404,
  unknown_tracking_key: 400,
  bad_request: 400,
  invalid_input: 400,
  bad_signature: 403,
  external_id_taken: 409,
  stale_version: 412,
  body_too_large: 413,
  unsupported_encoding: 415,
  unsupported_media_type: 415,
  rate_limited: 429,
  unavailable: 503,
  platform_unavailable: 503,
  internal: 500,
}

export const ErrorEnvelopeSchema = Type.Object({
  statusCode: Type.Integer(),
  error: Type.String(),
  message: Type.String(),
  details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
  requestId: Type.String(),
})

export type ErrorEnvelope = Static<typeof ErrorEnvelopeSchema>

export function errorEnvelope(error: AppError, requestId: string): ErrorEnvelope {
  const statusCode = ERROR_STATUS[error.code]
  return {
    statusCode,
    error: STATUS_CODES[statusCode] ?? 'Error',
    message: error.message,
    ...(error.details ? { details: error.details } : {}),
    requestId,
  }
}

/**
 * Answers every error of a route. What nobody foresaw is `internal`: told to the log in full, to the caller
 * in no word.
 */
export function answerErrors(app: FastifyInstance): void {
  app.setErrorHandler((error: FastifyError, request, reply) => sendError(error, request, reply))
}

export function sendError(error: Error, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const known = asAppError(error)
  const status = ERROR_STATUS[known.code]
  if (status >= 500) {
    // A bug is told with where it arose. A database that is away fails thousands of requests a second, all alike, be it that
    // the specification demands 500 of them.
    const isForeseen = error.cause instanceof AppError
    const isBug = known.code === 'internal' && !isForeseen
    const origin = isForeseen ? (error.cause as AppError) : error
    const fault = { requestId: request.id, code: known.code, ...describeFault(origin, isBug) }
    request.log[isBug ? 'error' : 'warn'](fault, 'request failed')
  }
  if (known.retryAfterSeconds !== undefined) reply.header('retry-after', known.retryAfterSeconds)
  return reply.code(status).send(errorEnvelope(known, request.id))
}

function asAppError(error: Error & { code?: string; statusCode?: number }): AppError {
  if (error instanceof AppError) return error
  // What Fastify itself refuses, before any of our code runs.
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return new AppError('body_too_large')
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return new AppError('unsupported_media_type')
  const status = error.statusCode ?? 500
  if (status >= 400 && status < 500) return new AppError('bad_request', { cause: error })
  return new AppError('internal', { cause: error })
}

/** What the log may know of a fault. Not the database's message or detail, which quote the data. */
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

/** A request so broken that no route could be found for it, answered on the raw socket's behalf. */
export function rawErrorAnswer(statusCode: number, requestId: string): string {
  const { reason, headers, body } = unroutableAnswer(statusCode, requestId)
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return [`HTTP/1.1 ${statusCode} ${reason}`, ...lines, '', body].join('\r\n')
}

/** The envelope for what no route answers, as it is written where there is no reply of the framework's. */
export function unroutableAnswer(statusCode: number, requestId: string) {
  const reason = STATUS_CODES[statusCode] ?? 'Bad Request'
  const message = statusCode === 400 ? ERROR_MESSAGES.bad_request : reason
  const body = JSON.stringify({ statusCode, error: reason, message, requestId })
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  }
  return { reason, headers, body }
}
