/** The OpenAPI document, its page and the typed client agree with the running service. */
import { isDeepStrictEqual } from 'node:util'
import { expect, it } from 'vitest'
import { audienceClient, members } from '../../examples/client.ts'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { openapi } from '../support/openapi.ts'
import { setUpService } from '../support/service.ts'

const { service, tenant } = await setUpService()

const operations = Object.entries(openapi.paths).flatMap(([path, methods]) =>
  Object.entries(methods as Record<string, { security?: unknown }>).map(([method, { security }]) => ({
    name: `${method.toUpperCase()} ${path}`,
    security,
  })),
)

it('the OpenAPI document equals docs/openapi.json, which `npm run generate` writes', () => {
  expect(service.app.swagger()).toEqual(openapi)
})

it('the OpenAPI document is served at /openapi.json', async () => {
  const served = await service.call('GET', '/openapi.json')
  expect(served.headers.get('content-type')).toBe('application/json; charset=utf-8')
  expect(served.json).toEqual(openapi)
})

it('the OpenAPI document requires the three headers together on protected endpoints, and says that the others are public', () => {
  const secured = operations.filter(({ security }) => !isDeepStrictEqual(security, []))
  expect(secured.map(({ name }) => name).sort()).toEqual([
    'DELETE /api/audience/{id}',
    'GET /api/audience',
    'POST /api/line-oa/verify',
    'PUT /api/audience/{id}',
  ])
  for (const { security } of secured)
    expect(security).toEqual([{ clientId: [], clientSecret: [], apiKey: [] }])
})

it('the documentation page loads only files of its own host', async () => {
  const page = await service.call('GET', '/docs')
  expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
  expect(page.headers.get('content-security-policy')).toMatch(/^default-src 'none'; script-src 'self';/)
  const files = [...page.text.matchAll(/ (?:src|href)="([^"]+)"/g)].map(([, file]) => file as string)
  expect(files.length).toBeGreaterThan(4)
  for (const file of files) {
    expect(file).toMatch(/^\/docs\/static\//)
    expect((await service.call('GET', file)).status, file).toBe(200)
  }
  expect((await service.call('GET', '/docs/json')).json).toEqual(openapi)
})

/** The example of a request body, which belongs to the body or to its component schema. */
function exampleOf(path: string, method = 'post'): string {
  const content = openapi.paths[path][method].requestBody.content['application/json']
  const component = content.schema.$ref?.split('/').at(-1)
  return JSON.stringify(content.example ?? openapi.components.schemas[component].examples[0])
}

const receipt = { accepted: 1, duplicates: 0 }

it('the example of a request body is accepted by every endpoint that receives events', async () => {
  const delivery = exampleOf('/api/line/{id}')
  const headers = { 'x-line-signature': signLine(delivery, new Secret(tenant.channelSecret)) }
  const delivered = await service.call('POST', `/api/line/${tenant.accountId}`, { headers, body: delivery })
  expect(delivered.json).toEqual(receipt)
  const callback = exampleOf('/api/mbox/callback/{oaHash}')
  const called = await service.call('POST', `/api/mbox/callback/${tenant.oaHash}`, { body: callback })
  expect(called.json).toEqual(receipt)
  const tracking = exampleOf('/api/tracking').replace('{trackingKey}', tenant.trackingKey)
  const tracked = await service.call('POST', '/api/tracking', { body: tracking })
  expect(tracked.json).toMatchObject({ accepted: 1 })
  const [member] = await service.members(tenant)
  expect(member).toMatchObject({ eventCount: 2, conversation: { id: '31', status: 'resolved' } })
})

it('the example of a request body is accepted by the update of a member', async () => {
  const [member] = await service.members(tenant)
  const body = exampleOf('/api/audience/{id}', 'put')
  const updated = await service.put(tenant, member?.id, body)
  expect(updated.json).toMatchObject(JSON.parse(body))
})

it('the example of a request body is accepted by the verification', async () => {
  const body = exampleOf('/api/line-oa/verify')
  const verified = await service.call('POST', '/api/line-oa/verify', { headers: tenant.headers, body })
  expect(verified.status).toBe(200)
})

const client = audienceClient(service.url, {
  clientId: tenant.headers['x-client-id'],
  clientSecret: tenant.headers['x-client-secret'],
  apiKey: tenant.headers['x-api-key'],
})
const firstMember = async () => {
  const { value } = await members(client, { limit: 1, relationship: 'following' }).next()
  if (value === undefined) throw new Error('The audience is empty.')
  return { path: { id: value.id } }
}

it('the typed client updates, lists and erases members, and returns errors', async () => {
  const body = { tags: ['new', 'vip'] }
  const { data } = await client.PUT('/api/audience/{id}', { params: await firstMember(), body })
  expect(data).toMatchObject(body)
  const page = await client.GET('/api/audience', { params: { query: { tag: body.tags } } })
  expect(page.data?.data).toEqual([data])
  const params = { ...(await firstMember()), header: { 'if-match': '"1"' } }
  const { error } = await client.PUT('/api/audience/{id}', { params, body: {} })
  expect(error).toMatchObject({ statusCode: 412 })
  const { response } = await client.DELETE('/api/audience/{id}', { params: await firstMember() })
  expect(response.status).toBe(204)
  await expect(firstMember()).rejects.toThrow('The audience is empty.')
})
