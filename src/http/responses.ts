/** Publishes every finished request, answered or not, to the log, the metrics and the traces. */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'

/** nginx's status for a client that disconnected before the end of the response. No client receives it. */
const CLIENT_DISCONNECTED = 499

export interface Answer {
  /** null: a request so broken that the framework did not see it */
  request: FastifyRequest | null
  /** the requestId in the error body, if there is one */
  requestId: string
  /** the pattern, not the path: a path may contain an oaHash, a query a tracking key */
  route: string
  status: number
  /** from the end of the headers to the end of the response; null: not measured */
  seconds: number | null
  ip: string | undefined
}

export type AnswerObserver = (answer: Answer) => void

declare module 'fastify' {
  interface FastifyInstance {
    /** each is called once per request */
    answerObservers: AnswerObserver[]
  }
}

export const UNKNOWN_ROUTE = 'unknown'

const ABORT = Symbol('response aborted by the service')

type Response = ServerResponse & { [ABORT]?: { status: number; requestId: string | undefined } }

/** Call this before destroying a connection. Otherwise the request looks like one whose client disconnected. */
export function recordAbort(response: ServerResponse, status: number, requestId?: string): void {
  const aborted: Response = response
  aborted[ABORT] = { status, requestId }
}

export function publishAnswer(app: FastifyInstance, answer: Answer): void {
  for (const observe of app.answerObservers) observe(answer)
}

/** Publishes on the response's close. Fastify's onResponse does not run when the client disconnects. */
export function observeAnswers(app: FastifyInstance): void {
  app.decorate('answerObservers', [])
  app.addHook('onRequest', (request, { raw }, done) => {
    const startedAtMs = performance.now()
    // A closed socket no longer has an address.
    const { ip } = request
    onceClosed(raw, request.raw.socket, () => {
      const abort = (raw as Response)[ABORT]
      publishAnswer(app, {
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

/** By connection: what to do for its unanswered requests when it closes. */
const unanswered = new WeakMap<Socket, Set<() => void>>()

/**
 * Calls back once, when the response or its connection closes. When a client disconnects, Node closes only the response that is being
 * sent, not those of pipelined requests that wait for their turn.
 */
function onceClosed(response: ServerResponse, socket: Socket, callback: () => void): void {
  let pending = unanswered.get(socket)
  if (pending === undefined) {
    const added = new Set<() => void>()
    pending = added
    unanswered.set(socket, added)
    socket.once('close', () => {
      for (const close of added) close()
    })
  }
  const ofSocket = pending
  const close = () => {
    if (ofSocket.delete(close)) callback()
  }
  ofSocket.add(close)
  response.once('close', close)
}
