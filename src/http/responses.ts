/** Headers of every response, and what is published of every finished request, with or without one, to the log and the metrics. */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { type FinishedRequest, type RequestObserver, UNKNOWN_ROUTE } from '../observability/facts.ts'
import { bareAddress } from './rate-limit.ts'

/** nginx's status for a client that disconnected before the end of the response. No client receives it. */
const CLIENT_DISCONNECTED = 499

declare module 'fastify' {
  interface FastifyInstance {
    requestObservers: RequestObserver[]
  }
}

/** On every response, unless a route replaces them: a shared cache does not know the headers by which clients differ. */
export const SAFE_HEADERS = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' }

const ABORT = Symbol('response aborted by the service')

type Response = ServerResponse & { [ABORT]?: { status: number; requestId: string | undefined } }

/** Call this before destroying a connection. Otherwise the request is recorded as one whose client disconnected. */
export function recordAbort(response: ServerResponse, status: number, requestId?: string): void {
  const aborted: Response = response
  aborted[ABORT] = { status, requestId }
}

export function publishFinishedRequest(app: FastifyInstance, finished: FinishedRequest): void {
  for (const observe of app.requestObservers) observe(finished)
}

/** Sets SAFE_HEADERS, and publishes on the response's close. Fastify's onResponse does not run when the client disconnects. */
export function observeRequests(app: FastifyInstance): void {
  app.decorate('requestObservers', [])
  app.addHook('onRequest', (request, reply, done) => {
    const startedAtMs = performance.now()
    const { raw } = reply.headers(SAFE_HEADERS)
    // A closed socket no longer has an address.
    const ip = request.ip && bareAddress(request.ip)
    onceClosed(raw, request.raw.socket, () => {
      const abort = (raw as Response)[ABORT]
      publishFinishedRequest(app, {
        request,
        requestId: abort?.requestId ?? request.id,
        route: request.routeOptions.url ?? UNKNOWN_ROUTE,
        status: raw.writableFinished ? raw.statusCode : (abort?.status ?? CLIENT_DISCONNECTED),
        seconds: (performance.now() - startedAtMs) / 1000,
        ip,
      })
    })
    done()
  })
}

/**
 * Calls back once, when the response or its connection closes. When a client disconnects, Node closes only the response in
 * progress, which has the socket, and not those of pipelined requests behind it.
 */
function onceClosed(response: ServerResponse, socket: Socket, callback: () => void): void {
  if (response.socket !== null) {
    response.once('close', callback)
    return
  }
  let isClosed = false
  const close = () => {
    if (isClosed) return
    isClosed = true
    socket.off('close', close)
    callback()
  }
  // A connection may have many pipelined requests.
  socket.setMaxListeners(0).once('close', close)
  response.once('close', close)
}
