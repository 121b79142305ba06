/** Responds to requests that reach no route and no hook: malformed HTTP, an undecodable path, an unsupported expectation. */
import { randomUUID } from 'node:crypto'
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type AppError, ERROR_MESSAGES } from '../errors.ts'
import { type ErrorEnvelope, sendError } from './error-envelope.ts'
import { publishFinishedRequest, recordAbort, UNKNOWN_ROUTE } from './responses.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** counts a request that runs no hook and resolves with the refusal, if any; null without a rate limit */
    limitUnroutable: ((request: FastifyRequest, reply: FastifyReply) => Promise<AppError | undefined>) | null
  }
}

/** Responds to a request whose path the router cannot decode. */
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

/** Refuses an Expect header other than 100-continue. */
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
  publishFinishedRequest(app, { request: null, requestId, route: UNKNOWN_ROUTE, status, seconds: null, ip })
}

function unroutableBytes(status: number, requestId: string): string {
  const { reason, headers, body } = unroutableResponse(status, requestId)
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return [`HTTP/1.1 ${status} ${reason}`, ...lines, '', body].join('\r\n')
}

function unroutableResponse(statusCode: number, requestId: string) {
  const reason = STATUS_CODES[statusCode] ?? 'Bad Request'
  const message = statusCode === 400 ? ERROR_MESSAGES.bad_request : reason
  const body = JSON.stringify({ statusCode, error: reason, message, requestId } satisfies ErrorEnvelope)
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  }
  return { reason, headers, body }
}
