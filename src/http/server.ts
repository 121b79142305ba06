/** Creates the HTTP server without routes: limits, request ids, bodies, errors. */
import { randomUUID } from 'node:crypto'
import Fastify, { type FastifyInstance, LogController } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import type { Config } from '../config/config.ts'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import { readBodiesAsBytes } from './body.ts'
import { handleErrors } from './error-envelope.ts'
import { limitIdleConnections } from './idle-connections.ts'
import { useSchemasAsDocumentation } from './openapi.ts'
import { observeRequests } from './responses.ts'
import { handleClientError, handleFrameworkError, refuseExpectation } from './unroutable.ts'

/** Time from the first byte of a request to the last. LINE's senders take milliseconds. */
const REQUEST_TIMEOUT_MS = 15_000
const HEADERS_TIMEOUT_MS = 10_000
/** Longer than the 60 s after which common proxies close idle connections, so that the proxy closes first. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000
/** Time without traffic in either direction. A response that the client does not read must not stay in memory. */
const IDLE_TIMEOUT_MS = 120_000
const TIMEOUT_CHECK_INTERVAL_MS = 1_000
/** Node limits the request line and all headers together to 16 KiB, so no path can be longer. */
const PATH_PARAMETER_MAX_LENGTH = 16 * 1024

export function createServer(
  { logLevel, trustProxy }: Pick<Config, 'logLevel' | 'trustProxy'>,
  log: DestinationStream = pino.destination(1),
): FastifyInstance {
  const app: FastifyInstance = Fastify({
    logger: { level: logLevel, stream: log },
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => randomUUID(),
    // A child logger per request costs more than adding requestId to the few lines that need it.
    childLoggerFactory: (logger) => logger,
    requestIdHeader: false,
    trustProxy: trustProxy.length > 0 ? trustProxy : false,
    bodyLimit: BODY_MAX_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionTimeout: IDLE_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_INTERVAL_MS,
      // requireWellFormed refuses such requests with the error envelope.
      requireHostHeader: false,
    },
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: PATH_PARAMETER_MAX_LENGTH },
    // A request that arrives before the close is still handled. Its connection is closed afterwards.
    return503OnClosing: false,
    frameworkErrors: (error, request, reply) => void handleFrameworkError(app, error, request, reply),
    clientErrorHandler: (error, socket) => handleClientError(app, error, socket),
  })
  app.decorate('limitUnroutable', null)
  app.server.on('checkExpectation', (request, response) => refuseExpectation(app, request, response))
  limitIdleConnections(app)
  observeRequests(app)
  readBodiesAsBytes(app)
  useSchemasAsDocumentation(app)
  handleErrors(app)
  return app
}

/** Call it after limitRate, so that malformed requests count too. The router checks only decoded paths. */
export function requireWellFormed(app: FastifyInstance): void {
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    if (raw.headers.host === undefined && raw.httpVersion === '1.1')
      done(new AppError('bad_request', { message: 'The Host header is missing' }))
    else if (!isDecodable(raw.url ?? ''))
      done(new AppError('bad_request', { message: 'The path has invalid percent-encoding' }))
    else done()
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

/** Call it after all routes are added, and after limitRate, so that these requests count. */
export function refuseUnknownRoutes(app: FastifyInstance): void {
  // This runs before the body is read.
  app.addHook('preParsing', ({ is404 }, _reply, payload, done) => {
    if (is404) done(new AppError('unknown_route'))
    else done(null, payload)
  })
  app.setNotFoundHandler(() => {
    throw new AppError('unknown_route')
  })
}
