/** The HTTP server before routes are added: limits, request ids, one log line a request. */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import Fastify, { type FastifyInstance, LogController } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import type { Config } from '../config.ts'
import { AppError } from '../errors.ts'
import { requestLog } from '../observability/request-log.ts'
import { noteCutOff, observeAnswers, UNKNOWN_ROUTE } from './answers.ts'
import { BODY_MAX_BYTES, readBodiesAsBytes } from './body.ts'
import { answerErrors, rawErrorAnswer, sendError, unroutableAnswer } from './error-envelope.ts'
import { useSchemasAsDocumentation } from './openapi.ts'

/** From the first byte to the last: a slow sender is cut off. LINE's senders take milliseconds. */
const REQUEST_TIMEOUT_MS = 15_000
const HEADERS_TIMEOUT_MS = 10_000
/** Longer than the 60 s after which common proxies close idle connections, so that it is they who close. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000
/** Of silence in both directions: an answer that nobody takes must not stay in memory for ever. */
const SILENCE_TIMEOUT_MS = 120_000
/** How often overdue requests are looked for. */
const TIMEOUT_CHECK_MS = 1_000
/** Node limits all headers together, the request line included, to 16 KiB: no path can be longer. */
const PARAMETER_MAX_LENGTH = 16 * 1024

export function createServer(
  { logLevel, trustProxy }: Pick<Config, 'logLevel' | 'trustProxy'>,
  log: DestinationStream = pino.destination(1),
): FastifyInstance {
  const app = Fastify({
    logger: { level: logLevel, stream: log },
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => randomUUID(),
    // One logger for all: a child for each request costs more than the few lines that name a requestId.
    childLoggerFactory: (logger) => logger,
    requestIdHeader: false,
    trustProxy: trustProxy.length > 0 ? trustProxy : false,
    bodyLimit: BODY_MAX_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionTimeout: SILENCE_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      // refused below, in the shape of every error
      requireHostHeader: false,
    },
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: PARAMETER_MAX_LENGTH },
    // A request that came before the close is served; connections are closed after it.
    return503OnClosing: false,
    frameworkErrors: (error, request, reply) => {
      const limited = app.limitUnroutable?.(request, reply) ?? Promise.resolve()
      limited
        .then(
          () => sendError(error, request, reply),
          (refusal) => sendError(refusal, request, reply),
        )
        .then(() => noteUnroutable(request.id, reply.statusCode, request.ip))
    },
    clientErrorHandler: (error, socket) => {
      answerBrokenRequest(error, socket, (status, begun) => {
        const requestId = randomUUID()
        if (begun) noteCutOff(begun, status, requestId)
        else noteUnroutable(requestId, status, socket.remoteAddress)
        return rawErrorAnswer(status, requestId)
      })
    },
  })
  app.decorate('limitUnroutable', null)
  const tellAnswer = observeAnswers(app)
  readBodiesAsBytes(app)
  useSchemasAsDocumentation(app)
  answerErrors(app)
  app.server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    const requestId = randomUUID()
    const { headers, body } = unroutableAnswer(417, requestId)
    noteUnroutable(requestId, 417, request.socket.remoteAddress)
    response.writeHead(417, headers).end(body)
  })
  const noteUnroutable = (requestId: string, status: number, ip: string | undefined) =>
    tellAnswer({ request: null, requestId, route: UNKNOWN_ROUTE, status, seconds: null, ip })
  if (['info', 'debug', 'trace'].includes(logLevel)) app.answerObservers.push(requestLog(log))
  return app
}

/** After the rate limit, so that such a request counts, too. The router judges paths alone, and HTTP/1.1 demands a host. */
export function requireWellFormed(app: FastifyInstance): void {
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    const message =
      raw.headers.host === undefined && raw.httpVersion === '1.1'
        ? 'The Host header is missing'
        : !isDecodable(raw.url ?? '') && 'The address has broken percent-encoding'
    done(message ? new AppError('bad_request', { message }) : undefined)
  })
}

function isDecodable(url: string): boolean {
  if (!url.includes('%')) return true
  try {
    decodeURIComponent(url)
    return true
  } catch {
    return false
  }
}

/** After all routes: what no route answers. */
export function answerUnknownRoutes(app: FastifyInstance): void {
  app.setNotFoundHandler(() => {
    throw new AppError('unknown_route')
  })
}

/** @param answerOf the answer with that status, as bytes; `begun` is the response of a request of which only a part came */
function answerBrokenRequest(
  error: Error & { code?: string },
  socket: Socket,
  answerOf: (status: number, begun: ServerResponse | null) => string,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const status =
    error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400
  const refuse = (begun: ServerResponse | null = null) =>
    socket.end(answerOf(status, begun), () => socket.destroy())
  // A good request before this one on the same connection has its answer first: it may have been accepted. One that is
  // itself unfinished will never have any.
  const { _httpMessage: unanswered = null } = socket as { _httpMessage?: ServerResponse | null }
  if (unanswered?.req.complete)
    unanswered.once('close', () => socket.destroy()).once('finish', () => refuse())
  else refuse(unanswered)
}
