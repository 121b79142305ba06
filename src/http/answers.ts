/** Every request once it is over, answered or not: for the log, the metrics and the traces. */
import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'

/** nginx's word for a sender that left before it had the whole answer. Nobody receives it. */
const HUNG_UP = 499

export interface Answer {
  /** the one that the answer names, where it has a body of ours */
  requestId: string
  status: number
  /** from the request's headers to its end */
  seconds: number
  ip: string
}

export type AnswerObserver = (request: FastifyRequest, answer: Answer) => void

declare module 'fastify' {
  interface FastifyInstance {
    /** told of each request that has met a hook, once */
    answerObservers: AnswerObserver[]
  }
}

const CUT_OFF = Symbol('what we cut off ourselves')

type Response = ServerResponse & { [CUT_OFF]?: { status: number; requestId: string | undefined } }

/** To be called before we destroy a connection ourselves: else it looks as if its sender had hung up. */
export function noteCutOff(response: ServerResponse, status: number, requestId?: string): void {
  const cut: Response = response
  cut[CUT_OFF] = { status, requestId }
}

/** Not Fastify's onResponse, which is silent about requests whose sender hung up: the slow ones above all. */
export function observeAnswers(app: FastifyInstance): void {
  const observers: AnswerObserver[] = []
  app.decorate('answerObservers', observers)
  app.addHook('onRequest', (request, { raw }, done) => {
    const startedAtMs = performance.now()
    // A socket that is closed does not tell it any more.
    const { ip } = request
    raw.once('close', () => {
      const cut = (raw as Response)[CUT_OFF]
      const answer = {
        requestId: cut?.requestId ?? request.id,
        status: raw.writableFinished ? raw.statusCode : (cut?.status ?? HUNG_UP),
        seconds: (performance.now() - startedAtMs) / 1000,
        ip,
      }
      for (const observe of observers) observe(request, answer)
    })
    done()
  })
}
