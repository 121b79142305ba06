/**
 * Traces for OpenTelemetry, when OTEL_* says where to. Spans say which statement, route or call took how long: no ids but
 * the request's, no addresses, no values.
 */
import {
  type Attributes,
  context,
  type Link,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'

/** Set once by startTracing; null costs one comparison where a span would be. */
let tracer: Tracer | null = null

export interface Service {
  name: string
  version: string
}

/** A collector that is away fails every few seconds. */
const FAULT_TOLD_EVERY_MS = 60 * 60 * 1000

/**
 * Sends traces to an OpenTelemetry collector by OTLP over HTTP (protobuf). The library reads the endpoint, headers, sampler,
 * batch sizes and resource attributes from OTEL_* itself, as every OpenTelemetry program does.
 * @param onFault told when traces cannot be sent, at most once an hour; they are dropped then
 * @returns sends what is left, and ends
 */
export async function startTracing(service: Service, onFault: () => void): Promise<() => Promise<void>> {
  // Loaded only where somebody looks: it takes 100 ms and 15 MiB.
  const [{ diag, DiagLogLevel }, sdk, { OTLPTraceExporter }, resources] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/exporter-trace-otlp-proto'),
    import('@opentelemetry/resources'),
  ])
  const ignore = () => undefined
  let toldAtMs = Number.NEGATIVE_INFINITY
  const tell = () => {
    if (performance.now() - toldAtMs < FAULT_TOLD_EVERY_MS) return
    toldAtMs = performance.now()
    onFault()
  }
  diag.setLogger(
    { error: tell, warn: ignore, info: ignore, debug: ignore, verbose: ignore },
    DiagLogLevel.ERROR,
  )
  const provider = new sdk.NodeTracerProvider({
    resource: resources
      .resourceFromAttributes({ 'service.name': service.name, 'service.version': service.version })
      .merge(resources.detectResources({ detectors: [resources.envDetector] })),
    spanProcessors: [new sdk.BatchSpanProcessor(new OTLPTraceExporter())],
  })
  provider.register()
  traceWith(provider.getTracer(service.name, service.version))
  return () => provider.shutdown().catch(tell)
}

/** From now on spans are made, by this tracer. */
export function traceWith(maker: Tracer): void {
  tracer = maker
}

/** The span of a request, below the one that its `traceparent` header names; null where nobody traces. */
export function startRequestSpan(
  name: string,
  { traceparent }: { [header: string]: unknown },
  attributes: Attributes,
): Span | null {
  if (tracer === null) return null
  // Not tracestate, which is any text.
  const caller = propagation.extract(ROOT_CONTEXT, { traceparent })
  return tracer.startSpan(name, { kind: SpanKind.SERVER, attributes }, caller)
}

/** Runs `work` within a span that ends with it; what is traced in `work` is below that span. */
export function inSpan<T>(name: string, options: SpanOptions, work: () => Promise<T>): Promise<T> {
  if (tracer === null) return work()
  const span = tracer.startSpan(name, options)
  return context
    .with(trace.setSpan(context.active(), span), work)
    .catch((error: Error) => {
      // Not its words: they may quote what somebody sent.
      span.setStatus({ code: SpanStatusCode.ERROR, message: error.name })
      throw error
    })
    .finally(() => span.end())
}

/** What is asked of somebody else: only as part of something that is traced, or idle work would fill the traces. */
export function inClientSpan<T>(
  name: () => string,
  attributes: Attributes,
  work: () => Promise<T>,
): Promise<T> {
  if (tracer === null || trace.getActiveSpan() === undefined) return work()
  return inSpan(name(), { kind: SpanKind.CLIENT, attributes }, work)
}

/** To the span in which this is called: for work that is done for several together. */
export function linkToHere(): Link | null {
  const here = tracer === null ? undefined : trace.getActiveSpan()
  return here === undefined ? null : { context: here.spanContext() }
}
