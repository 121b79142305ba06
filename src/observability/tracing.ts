/**
 * OpenTelemetry traces, sent if OTEL_* configures a collector, with a span for each request, flush, profile request, database query
 * and platform call. Spans contain names of statements, routes and calls, but no values and no ids except the request's.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import {
  type Attributes,
  type Context,
  type Link,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { W3CTraceContextPropagator } from '@opentelemetry/core'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import {
  databaseQuery,
  deliveryQueued,
  flushing,
  type Operation,
  platformCall,
  profileRequest,
} from './facts.ts'

/** While the collector is unreachable, exporting fails every few seconds. */
const FAULT_REPORT_INTERVAL_MS = 60 * 60 * 1000

/**
 * Exports spans by OTLP over HTTP (protobuf). The library reads endpoint, headers, sampler, batch sizes and resource attributes from
 * OTEL_*.
 * @param onFault called when spans cannot be exported and are dropped, at most once an hour
 */
export async function startExporter(
  service: { name: string; version: string },
  onFault: () => void,
): Promise<{ tracer: Tracer; shutdown: () => Promise<void> }> {
  // Loading takes 100 ms and 15 MiB.
  const [{ diag, DiagLogLevel }, sdk, { OTLPTraceExporter }, resources] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/exporter-trace-otlp-proto'),
    import('@opentelemetry/resources'),
  ])
  const ignore = () => undefined
  let reportedAtMs = Number.NEGATIVE_INFINITY
  const report = () => {
    if (performance.now() - reportedAtMs < FAULT_REPORT_INTERVAL_MS) return
    reportedAtMs = performance.now()
    onFault()
  }
  diag.setLogger(
    { error: report, warn: ignore, info: ignore, debug: ignore, verbose: ignore },
    DiagLogLevel.ERROR,
  )
  const provider = new sdk.NodeTracerProvider({
    resource: resources
      .resourceFromAttributes({ 'service.name': service.name, 'service.version': service.version })
      .merge(resources.detectResources({ detectors: [resources.envDetector] })),
    spanProcessors: [new sdk.BatchSpanProcessor(new OTLPTraceExporter())],
  })
  return {
    tracer: provider.getTracer(service.name, service.version),
    shutdown: () => provider.shutdown().catch(report),
  }
}

/** Turns facts into spans of one tracer. */
export class Tracing {
  readonly #tracer: Tracer
  readonly #active = new AsyncLocalStorage<Span>()
  readonly #spans = new WeakMap<object, Span>()
  /** The spans of deliveries that wait for a flush. */
  readonly #links = new WeakMap<object, Link>()
  readonly #unsubscribe: Array<() => void> = []

  constructor(tracer: Tracer) {
    this.#tracer = tracer
    this.#trace(databaseQuery, ({ statements }) =>
      this.#client(statements.join(', '), { 'db.system.name': 'postgresql' }),
    )
    this.#trace(platformCall, ({ method, path }) =>
      this.#client(`${method} ${path}`, { 'http.request.method': method }),
    )
    this.#trace(profileRequest, () => this.#tracer.startSpan('request a profile', {}, ROOT_CONTEXT))
    this.#trace(flushing, ({ events, deliveries }) => {
      const links = deliveries.flatMap((delivery) => this.#links.get(delivery) ?? [])
      return this.#tracer.startSpan(
        'flush',
        { links, attributes: { 'oa_audience.events': events } },
        ROOT_CONTEXT,
      )
    })
    this.#unsubscribe.push(
      deliveryQueued.subscribe(({ delivery }) => {
        const span = this.#active.getStore()
        if (span !== undefined) this.#links.set(delivery, { context: span.spanContext() })
      }),
    )
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  /** One span per request, from its headers to its response. Its parent is the span of the `traceparent` header. */
  traceRequests(app: FastifyInstance): void {
    const spans = new WeakMap<FastifyRequest, Span>()
    const within = (request: FastifyRequest, next: () => void) => {
      const span = spans.get(request)
      if (span === undefined) next()
      else this.#active.run(span, next)
    }
    app.addHook('onRequest', (request, _reply, done) => {
      const route = request.routeOptions.url ?? 'unknown'
      // Any token can be a method, so only those of our routes become names.
      const method = request.routeOptions.url === undefined ? '_OTHER' : request.method
      const attributes = {
        'http.request.method': method,
        'http.route': route,
        'oa_audience.request_id': request.id,
      }
      const options = { kind: SpanKind.SERVER, attributes }
      spans.set(
        request,
        this.#tracer.startSpan(`${method} ${route}`, options, callerOf(request.headers.traceparent)),
      )
      within(request, done)
    })
    // The body arrives in the asynchronous context of the socket, which belongs to no request.
    app.addHook('preHandler', (request, _reply, done) => within(request, done))
    app.requestObservers.push(({ request, status }) => {
      const span = request === null ? undefined : spans.get(request)
      span?.setAttribute('http.response.status_code', status)
      if (status >= 500) span?.setStatus({ code: SpanStatusCode.ERROR })
      span?.end()
    })
  }

  /** A call to another system is traced only as part of a traced operation. Otherwise idle work would fill the traces. */
  #client(name: string, attributes: Attributes): Span | undefined {
    const parent = this.#active.getStore()
    if (parent === undefined) return undefined
    const options: SpanOptions = { kind: SpanKind.CLIENT, attributes }
    return this.#tracer.startSpan(name, options, trace.setSpan(ROOT_CONTEXT, parent))
  }

  #trace<Facts extends object>(
    { channels }: Operation<Facts>,
    start: (facts: Facts) => Span | undefined,
  ): void {
    channels.start.bindStore(this.#active, (message) => {
      const facts = message as Facts
      const span = start(facts)
      if (span !== undefined) this.#spans.set(facts, span)
      return (span ?? this.#active.getStore()) as Span
    })
    const subscribers = {
      error: (message: object & { error?: unknown }) => {
        // Only the error's name, because its message may quote received content.
        const { name } = message.error as Error
        this.#spans.get(message)?.setStatus({ code: SpanStatusCode.ERROR, message: name })
      },
      asyncEnd: (message: object) => this.#spans.get(message)?.end(),
    }
    channels.error.subscribe(subscribers.error as (message: unknown) => void)
    channels.asyncEnd.subscribe(subscribers.asyncEnd as (message: unknown) => void)
    this.#unsubscribe.push(() => {
      channels.start.unbindStore(this.#active)
      channels.error.unsubscribe(subscribers.error as (message: unknown) => void)
      channels.asyncEnd.unsubscribe(subscribers.asyncEnd as (message: unknown) => void)
    })
  }
}

const propagator = new W3CTraceContextPropagator()

/** Parses a `traceparent` header. `tracestate` is ignored, because it may contain any text. */
function callerOf(traceparent: unknown): Context {
  const getter = {
    get: (_: unknown, name: string) => (name === 'traceparent' ? (traceparent as string) : undefined),
    keys: () => ['traceparent'],
  }
  return propagator.extract(ROOT_CONTEXT, null, getter)
}
