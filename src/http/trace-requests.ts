/** One span a request, from its headers to its answer. */
import { context, type Span, SpanStatusCode, trace } from '@opentelemetry/api'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { startRequestSpan } from '../trace.ts'

export function traceRequests(app: FastifyInstance): void {
  const spans = new WeakMap<FastifyRequest, Span>()
  const within = (request: FastifyRequest, next: () => void) => {
    const span = spans.get(request)
    if (span === undefined) next()
    else context.with(trace.setSpan(context.active(), span), next)
  }
  app.addHook('onRequest', (request, _reply, done) => {
    const route = request.routeOptions.url ?? 'unknown'
    // Any token can be a method: only those of routes are named.
    const method = request.routeOptions.url === undefined ? '_OTHER' : request.method
    const span = startRequestSpan(`${method} ${route}`, request.headers, {
      'http.request.method': method,
      'http.route': route,
      'oa_audience.request_id': request.id,
    })
    if (span !== null) spans.set(request, span)
    within(request, done)
  })
  // The body arrived on the socket's account, which belongs to no request.
  app.addHook('preHandler', (request, _reply, done) => within(request, done))
  app.answerObservers.push(({ request, status }) => {
    const span = request === null ? undefined : spans.get(request)
    span?.setAttribute('http.response.status_code', status)
    if (status >= 500) span?.setStatus({ code: SpanStatusCode.ERROR })
    span?.end()
  })
}
