/** Every request once it is over, answered or not: for the log, the metrics and the traces. */
import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'

/** nginx's word for a sender that left before it had the whole answer. Nobody receives it. */
const HUNG_UP = 499

export interface Answer {
  /** null: it was too broken to be one of the framework's */
  request: FastifyRequest | null
  /** the one that the answer names, where it has a body of ours */
  requestId: string
  /** the pattern, not the address: a path may hold an oaHash, a query a tracking key */
  route: string
  status: number
  /** from the request's headers to its end; null where nobody looked at the clock */
  seconds: number | null
  ip: string | undefined
}

export type AnswerObserver = (answer: Answer) => void

declare module 'fastify' {
  interface FastifyInstance {
    /** told of each request, once */
    answerObservers: AnswerObserver[]
  }
}

export const UNKNOWN_ROUTE = 'unknown'

const CUT_OFF = Symbol('what we cut off ourselves')

type Response = ServerResponse & { [CUT_OFF]?: { status: number; requestId: string | undefined } }

/** To be called before we destroy a connection ourselves: else it looks as if its sender had hung up. */
export function noteCutOff(response: ServerResponse, status: number, requestId?: string): void {
  const cut: Response = response
  cut[CUT_OFF] = { status, requestId }
}

/**
 * Not Fastify's onResponse, which is silent about requests whose sender hung up: the slow ones above all.
 * @returns tells the observers of an answer that no hook meets
 */
export function observeAnswers(app: FastifyInstance): AnswerObserver {
  const observers: AnswerObserver[] = []
  const tell = (answer: Answer) => {
    for (const observe of observers) observe(answer)
  }
  app.decorate('answerObservers', observers)
  app.addHook('onRequest', (request, { raw }, done) => {
    const startedAtMs = performance.now()
    // A socket that is closed does not tell it any more.
    const { ip } = request
    raw.once('close', () => {
      const cut = (raw as Response)[CUT_OFF]
      tell({
        request,
        requestId: cut?.requestId ?? request.id,
        route: request.routeOptions.url ?? UNKNOWN_ROUTE,
        status: raw.writableFinished ? raw.statusCode : (cut?.status ?? HUNG_UP),
        seconds: (performance.now() - startedAtMs) / 1000,
        ip,
      })
    })
    done()
  })
  return tell
}
