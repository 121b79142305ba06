/** Creates the HTTP server without routes: limits, request ids, bodies, errors. */
import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import proxyAddr from '@fastify/proxy-addr'
import Fastify, { type FastifyError, type FastifyInstance, LogController } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import type { Config } from '../config/config.ts'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import { readBodiesAsBytes } from './body.ts'
import { handleClientError, handleFrameworkError, refuseExpectation, sendError } from './error-envelope.ts'
import { useSchemasAsDocumentation } from './openapi.ts'
import { bareAddress } from './rate-limit.ts'
import { observeRequests } from './responses.ts'

/** Time from the first byte of a request to the last. LINE's senders take milliseconds. */
const REQUEST_TIMEOUT_MS = 15_000
const HEADERS_TIMEOUT_MS = 10_000
/** Longer than the 600 s of Google's load balancer, so that the balancer closes first. A delivery could meet a closing connection. */
const KEEP_ALIVE_TIMEOUT_MS = 620_000
/** Time without traffic in either direction. A response that the client does not read must not stay in memory. */
const IDLE_TIMEOUT_MS = 120_000
const TIMEOUT_CHECK_INTERVAL_MS = 1_000
/** Node limits the request line and all headers together to 16 KiB, so no path can be longer. */
const PATH_PARAMETER_MAX_LENGTH = 16 * 1024

export function createServer(
  { logLevel, trustProxy }: Pick<Config, 'logLevel' | 'trustProxy'>,
  log: DestinationStream = pino.destination(1),
): FastifyInstance {
  const isTrusted = trustProxy.length > 0 && proxyAddr.compile(trustProxy)
  const app: FastifyInstance = Fastify({
    logger: { level: logLevel, stream: log },
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => randomUUID(),
    // A child logger per request costs more than adding requestId to the few lines that need it.
    childLoggerFactory: (logger) => logger,
    requestIdHeader: false,
    trustProxy: isTrusted && ((address = '', hop) => isTrusted(bareAddress(address), hop)),
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
    clientErrorHandler: (error, socket) => {
      if (!isUnused(error, socket)) handleClientError(app, error, socket)
    },
  })
  app.decorate('limitUnroutable', null)
  app.server.on('checkExpectation', (request, response) => refuseExpectation(app, request, response))
  limitIdleConnections(app)
  observeRequests(app)
  readBodiesAsBytes(app)
  useSchemasAsDocumentation(app)
  app.setErrorHandler<FastifyError>(sendError)
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
  app.setNotFoundHandler(() => {
    throw new AppError('unknown_route')
  })
}

// Bounds the connections that have no request: idle ones, and those whose headers are incomplete. Beyond the limit, the connection
// that has had no request for longest is closed, so a new one always has time to send its headers. A shutdown closes all of them.

/**
 * Go's HTTP client, which Caddy and Traefik use, opens connections that it first uses minutes later. Node.js would close them after
 * HEADERS_TIMEOUT_MS, perhaps while a delivery arrives.
 */
const isUnused = ({ code }: Error & { code?: string }, { bytesRead }: Socket) =>
  code === 'ERR_HTTP_REQUEST_TIMEOUT' && bytesRead === 0

/**
 * Limit per instance. A connection takes 8 KiB, or 20 KiB if it has sent 15 KiB of headers (measured with 4,096):
 * 4,096 × 20 KiB = 80 MiB at most. LINE and a proxy keep some dozens.
 */
const IDLE_MAX = 4_096
/** Limit per address. Behind a proxy, all senders have one address. */
const IDLE_PER_ADDRESS_MAX = IDLE_MAX / 2
/** During a shutdown, a connection has this time for its next request to arrive. Its response closes the connection. */
const LAST_REQUEST_MS = 500
const SWEEP_INTERVAL_MS = 50

function limitIdleConnections(app: FastifyInstance): void {
  const { server } = app
  const idle = new Set<Socket>()
  const idleOfAddress = new Map<string, Set<Socket>>()
  // The address is kept because a closed socket has none. The requests are counted because they may be pipelined.
  const states = new WeakMap<Socket, { address: string; requests: number; idleSinceMs: number }>()

  const remove = (socket: Socket) => {
    const state = states.get(socket)
    if (state === undefined || !idle.delete(socket)) return
    const sockets = idleOfAddress.get(state.address)
    sockets?.delete(socket)
    if (sockets?.size === 0) idleOfAddress.delete(state.address)
  }
  const closeOldest = (sockets: Set<Socket>) => {
    for (const oldest of sockets) {
      remove(oldest)
      oldest.destroy()
      return
    }
  }
  const add = (socket: Socket, state: { address: string; idleSinceMs: number }) => {
    const { address } = state
    const sockets = idleOfAddress.get(address) ?? new Set()
    state.idleSinceMs = performance.now()
    idleOfAddress.set(address, sockets.add(socket))
    idle.add(socket)
    if (sockets.size > IDLE_PER_ADDRESS_MAX) closeOldest(sockets)
    else if (idle.size > IDLE_MAX) closeOldest(idle)
  }
  server.on('connection', (socket: Socket) => {
    const state = { address: socket.remoteAddress ?? '', requests: 0, idleSinceMs: 0 }
    states.set(socket, state)
    socket.once('close', () => remove(socket))
    socket.setTimeout(KEEP_ALIVE_TIMEOUT_MS)
    add(socket, state)
  })
  server.prependListener('request', ({ socket }, response) => {
    const state = states.get(socket)
    if (state === undefined) return
    remove(socket)
    state.requests += 1
    // Node.js itself sets it only after another request.
    if (socket.timeout === KEEP_ALIVE_TIMEOUT_MS) socket.setTimeout(IDLE_TIMEOUT_MS)
    response.once('close', () => {
      state.requests -= 1
      if (state.requests === 0 && !socket.destroyed) add(socket, state)
    })
  })
  // Node.js itself closes only idle connections that have had a request, and only when the shutdown begins. The others would delay the
  // shutdown until they are cut.
  let sweep: NodeJS.Timeout | undefined
  app.addHook('preClose', async () => {
    sweep = setInterval(() => {
      const untilMs = performance.now() - LAST_REQUEST_MS
      for (const socket of idle) if ((states.get(socket)?.idleSinceMs ?? 0) <= untilMs) socket.destroy()
    }, SWEEP_INTERVAL_MS).unref()
  })
  app.addHook('onClose', async () => clearInterval(sweep))
}
