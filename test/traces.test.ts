/** OpenTelemetry traces show every request and flush, and contain no personal data and no secrets. */
import { createServer } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { SpanKind } from '@opentelemetry/api'
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'
import { expect, it, onTestFinished } from 'vitest'
import { Tracing } from '../src/observability/tracing.ts'
import { freePort } from '../tools/prove/service.ts'
import { textMessage } from '../tools/simulator/events.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant, createTestDatabase, markUsed, urlOf } from './support/database.ts'
import { becomesWell, spawnService } from './support/process.ts'
import { signedDelivery, startApp } from './support/service.ts'

const CALLER = { trace: '4bf92f3577b34da6a3ce929d0e0e4736', span: '00f067aa0ba902b7' }

it('traces a request as a child of its caller and parent of its statements, and links a flush to its deliveries', async () => {
  const exporter = new InMemorySpanExporter()
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const tracing = new Tracing(provider.getTracer('test'))
  onTestFinished(() => tracing.close())
  const { database } = await createTestDatabase()
  const tenant = await addTenant(database)
  await markUsed(database)
  const platform = await simulatePlatform()
  await database.query('update official_account set channel_access_token = $1', [
    platform.account.channelAccessToken,
  ])
  const service = await startApp(database, { tracing, config: { lineApiUrl: platform.url } })
  const spanOf = (name: string) => {
    const found = exporter.getFinishedSpans().filter((span) => span.name === name)
    expect(found, `${name} of ${exporter.getFinishedSpans().map((span) => span.name)}`).not.toEqual([])
    return found.at(-1) as (typeof found)[number]
  }

  await service.deliver(tenant, [textMessage('U1', 'hello')])
  await service.call('GET', '/api/audience', {
    headers: { ...tenant.headers, traceparent: `00-${CALLER.trace}-${CALLER.span}-01` },
  })
  await service.call('POST', '/api/line-oa/verify', { headers: tenant.headers, body: '{}' })
  await service.call('GET', '/nowhere')

  const delivery = spanOf('POST /api/line/:id')
  expect(delivery.kind).toBe(SpanKind.SERVER)
  expect(delivery.attributes).toMatchObject({
    'http.route': '/api/line/:id',
    'http.response.status_code': 200,
    'oa_audience.request_id': expect.any(String),
  })
  const flush = spanOf('flush')
  expect(flush.links.map(({ context }) => context.spanId)).toEqual([delivery.spanContext().spanId])
  expect(flush.parentSpanContext).toBeUndefined()
  expect(spanOf('flush-events').parentSpanContext?.spanId).toBe(flush.spanContext().spanId)

  const list = spanOf('GET /api/audience')
  expect(list.spanContext().traceId).toBe(CALLER.trace)
  expect(list.parentSpanContext?.spanId).toBe(CALLER.span)
  const below = exporter
    .getFinishedSpans()
    .filter((span) => span.parentSpanContext?.spanId === list.spanContext().spanId)
  expect(below).toHaveLength(2)
  expect(spanOf('GET /v2/bot/info').parentSpanContext?.spanId).toBe(
    spanOf('POST /api/line-oa/verify').spanContext().spanId,
  )
  expect(spanOf('_OTHER unknown').attributes['http.response.status_code']).toBe(404)
  await platform.close()
})

it('warns while the collector of OTEL_* is unreachable, and sends it no user id and no secret, the last ones at shutdown', async () => {
  const received: Buffer[] = []
  const collector = createServer(async (request, response) => {
    received.push(await buffer(request))
    expect(request.url).toBe('/v1/traces')
    response.writeHead(200).end()
  })
  onTestFinished(() => void collector.close())
  const port = await freePort()
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const service = await spawnService({
    DATABASE_URL: urlOf(connection),
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
    OTEL_SERVICE_NAME: 'audience-of-bangkok',
    // Long enough that the last spans wait for the shutdown.
    OTEL_BSP_SCHEDULE_DELAY: '1500',
    OTEL_EXPORTER_OTLP_TIMEOUT: '500',
  })
  await becomesWell(service.url)
  await expect.poll(() => service.output()).toContain('traces cannot be exported')
  await new Promise<void>((resolve) => collector.listen(port, '127.0.0.1', resolve))
  const { path, init } = signedDelivery(tenant, [textMessage('Uperson-of-traces', 'hello from traces')])
  expect((await fetch(service.url + path, init)).status).toBe(200)
  await fetch(`${service.url}/api/audience?userId=Uperson-of-traces`, { headers: tenant.headers })
  service.child.kill('SIGTERM')
  expect(await service.exited).toMatchObject({ code: 0 })
  const text = Buffer.concat(received).toString('latin1')
  for (const part of ['audience-of-bangkok', 'POST /api/line/:id', 'flush', 'GET /api/audience']) {
    expect(text).toContain(part)
  }
  const { channelSecret, oaHash, headers } = tenant
  for (const secret of ['Uperson', 'hello from', channelSecret, oaHash, ...Object.values(headers)]) {
    expect(text).not.toContain(secret)
  }
})
