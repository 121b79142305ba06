/** Statuses, headers and bodies of real responses are those of the OpenAPI document. */
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { faultsOf, openapi } from '../support/openapi.ts'
import { type Answer, startApp } from '../support/service.ts'

const { database } = await createTestDatabase()
const tenant = await addTenant(database)
const service = await startApp(database, {
  config: { rateLimit: { max: 1_000, windowMs: 60_000, spareSigned: false } },
})

/** Headers of HTTP itself, and those of every response, which the description of the document contains. */
const UNDOCUMENTED =
  /^(date|connection|keep-alive|content-length|content-type|transfer-encoding|cache-control|x-content-type-options|x-ratelimit-(limit|remaining|reset))$/

/** Sends a request. Fails unless the response is as the document says. */
async function call(
  operation: string,
  path: string,
  init: { headers?: Record<string, string>; body?: string } = {},
  at = service,
): Promise<Answer> {
  const [method = '', template = ''] = operation.split(' ')
  const response = await at.call(method, path, init)
  const name = `${operation} ${response.status}`
  const documented = openapi.paths[template][method.toLowerCase()].responses[response.status]
  expect(documented, name).toBeDefined()
  const headers = Object.keys(documented.headers).map((header) => header.toLowerCase())
  const sent = [...response.headers.keys()].filter((header) => !UNDOCUMENTED.test(header))
  expect(headers, `${name} has headers that are not documented`).toEqual(expect.arrayContaining(sent))
  if (response.status === 204) return response
  const mediaType = response.headers.get('content-type')?.split(';')[0] ?? ''
  expect(Object.keys(documented.content), name).toContain(mediaType)
  const pointer = `#/paths/${template.replaceAll('/', '~1')}/${method.toLowerCase()}/responses/${response.status}/content/${mediaType.replaceAll('/', '~1')}/schema`
  expect(faultsOf(pointer, response.json === undefined ? response.text : response.json), name).toEqual([])
  return response
}

const LIST = 'GET /api/audience'
const PUT = 'PUT /api/audience/{id}'
const DELETE = 'DELETE /api/audience/{id}'
const VERIFY = 'POST /api/line-oa/verify'
const json = { ...tenant.headers, 'content-type': 'application/json' }
const authenticated = { headers: tenant.headers }
const empty = await startApp(null)

it('responds to incoming events as documented, accepted or refused', async () => {
  const body = lineBody(tenant.botUserId, [lineEvent('follow', randomUserId())])
  const headers = { 'x-line-signature': signLine(body, new Secret(tenant.channelSecret)) }
  for (const name of ['line', 'Line']) {
    const operation = `POST /api/${name}/{id}`
    const path = `/api/${name}/${tenant.accountId}`
    await call(operation, path, { headers, body })
    await call(operation, path, { body })
    await call(operation, `/api/${name}/1`, { headers, body })
    await call(operation, path, { headers: { ...headers, 'content-encoding': 'br' }, body })
    await call(operation, path, { headers, body }, empty)
  }
  const callback = 'POST /api/mbox/callback/{oaHash}'
  const chat = JSON.stringify({ event: 'webwidget_triggered', id: 1 })
  await call(callback, `/api/mbox/callback/${tenant.oaHash}`, { body: chat })
  await call(callback, `/api/mbox/callback/${tenant.oaHash}`, { body: '{' })
  await call(callback, '/api/mbox/callback/unknown', { body: chat })
  const tracked = JSON.stringify({ writeKey: tenant.trackingKey, event: 'Order', userId: 'U1' })
  const origin = { origin: 'https://shop.example' }
  await call('POST /api/tracking', '/api/tracking', { headers: origin, body: tracked })
  await call('POST /api/tracking', '/api/tracking', { headers: origin, body: '{}' })
  await call('POST /api/tracking/v1/{call}', '/api/tracking/v1/track', { body: tracked })
  await call('POST /api/tracking/v1/{call}', '/api/tracking/v1/unknown', { body: tracked })
})

it('responds to clients of the audience as documented, with and without access', async () => {
  await service.deliver(tenant, [lineEvent('follow', 'Uann')])
  const { json: page } = await call(LIST, '/api/audience?limit=1', authenticated)
  const path = `/api/audience/${page.data[0].id}`
  await call(LIST, '/api/audience?unknown=1', authenticated)
  await call(LIST, '/api/audience')
  await call(LIST, '/api/audience', { headers: { ...tenant.headers, 'x-api-key': 'unknown' } })
  const updated = await call(PUT, path, { headers: json, body: '{"tags":["vip"],"externalId":"c-1"}' })
  expect(updated.headers.get('etag')).toBe('"2"')
  await call(PUT, path, { headers: { ...json, 'if-match': '"1"' }, body: '{}' })
  await call(PUT, path, { headers: json, body: '{"tags":1}' })
  await call(PUT, path, { headers: { ...json, 'content-type': 'text/plain' }, body: '{}' })
  await call(PUT, '/api/audience/1', { headers: json, body: '{}' })
  await call(PUT, path, { headers: { ...json, 'x-api-key': 'unknown' }, body: '{}' })
  await call(DELETE, path, { headers: { ...tenant.headers, 'if-match': '"1"' } })
  await call(DELETE, path, { headers: { ...tenant.headers, 'x-api-key': 'unknown' } })
  await call(DELETE, path, authenticated)
  await call(DELETE, path, authenticated)
})

it('streams lines that match the schema of a line', async () => {
  await service.deliver(tenant, [lineEvent('follow', 'Ubob')])
  const path = '/api/audience?updatedSince=2020-01-01T00:00:00Z'
  const lines = await call(LIST, path, { headers: { ...tenant.headers, accept: 'application/x-ndjson' } })
  const items = lines.text.trimEnd().split('\n')
  expect(items.length).toBeGreaterThan(1)
  for (const line of items) {
    expect(faultsOf('#/components/schemas/MemberLines/contentSchema', JSON.parse(line))).toEqual([])
  }
  const table = await call(LIST, path, { headers: { ...tenant.headers, accept: 'text/csv' } })
  const [columns] = openapi.components.schemas.MemberTable.examples[0].split('\r\n')
  expect(table.text.split('\r\n')[0]).toBe(columns)
})

it('responds to verifications, and about itself, as documented', async () => {
  await call(VERIFY, '/api/line-oa/verify', { headers: json, body: '{"unknown":1}' })
  await call(VERIFY, '/api/line-oa/verify', { headers: { ...json, 'x-api-key': 'unknown' } })
  await call(VERIFY, '/api/line-oa/verify', authenticated)
  await call('GET /api', '/api')
  await call('GET /api/health', '/api/health')
  await call('GET /api/health', '/api/health', {}, empty)
})

it('responds with the documented 429 to every operation beyond the rate limit', async () => {
  const limited = await startApp(database, {
    config: { rateLimit: { max: 1, windowMs: 60_000, spareSigned: false } },
  })
  await limited.call('GET', '/api')
  for (const [path, methods] of Object.entries(openapi.paths)) {
    for (const method of Object.keys(methods as object)) {
      const answer = await call(
        `${method.toUpperCase()} ${path}`,
        path.replace(/\{\w+\}/, 'track'),
        {},
        limited,
      )
      expect(answer.status).toBe(429)
      expect(answer.headers.get('retry-after')).toMatch(/^\d+$/)
    }
  }
})
