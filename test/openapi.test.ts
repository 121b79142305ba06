/** The OpenAPI document is what it says: checked in, complete, and its examples are accepted as they stand. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { ApiError, AudienceClient } from '../examples/client.ts'
import { signLine } from '../src/intake/line/signature.ts'
import { openApi } from '../src/openapi.ts'
import { serviceVersion } from '../src/package.ts'
import { Secret } from '../src/secret.ts'
import { setUpFile } from './support/service.ts'

const { service, tenant } = await setUpFile()

interface Document {
  paths: Record<string, Record<string, { requestBody?: { content: Record<string, { example?: unknown }> } }>>
}
const document = openApi(serviceVersion) as unknown as Document

it('is the one that is checked in: a change of the API is a change of docs/openapi.json (npm run generate)', () => {
  const checkedIn = JSON.parse(readFileSync(new URL('../docs/openapi.json', import.meta.url), 'utf8'))
  expect(document).toEqual(checkedIn)
})

it('is served, with a page that asks no other host for anything', async () => {
  const served = await service.call('GET', '/openapi.json')
  expect(served.json).toEqual(document)
  const page = await service.call('GET', '/docs')
  expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
  expect(page.text).toContain('/api/audience/{id}')
  expect(page.text).not.toMatch(/(src|href)="(https?:)?\/\//)
})

it('names every route of the service', () => {
  const named = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  )
  expect(named.sort()).toEqual([
    'DELETE /api/audience/{id}',
    'GET /api',
    'GET /api/audience',
    'GET /api/health',
    'POST /api/Line/{id}',
    'POST /api/line-oa/verify',
    'POST /api/line/{id}',
    'POST /api/mbox/callback/{oaHash}',
    'POST /api/tracking',
    'PUT /api/audience/{id}',
  ])
})

it('has examples that are accepted as they stand', async () => {
  const example = (path: string, method = 'post') =>
    JSON.stringify(document.paths[path]?.[method]?.requestBody?.content['application/json']?.example)
  const delivery = example('/api/line/{id}')
  const headers = { 'x-line-signature': signLine(delivery, new Secret(tenant.channelSecret)) }
  expect(
    (await service.call('POST', `/api/line/${tenant.accountId}`, { headers, body: delivery })).json,
  ).toEqual({
    accepted: 1,
    duplicates: 0,
  })
  const callback = example('/api/mbox/callback/{oaHash}')
  expect(
    (await service.call('POST', `/api/mbox/callback/${tenant.oaHash}`, { body: callback })).json,
  ).toEqual({
    accepted: 1,
    duplicates: 0,
  })
  const tracking = example('/api/tracking').replace('{trackingKey}', tenant.trackingKey)
  expect((await service.call('POST', '/api/tracking', { body: tracking })).json).toMatchObject({
    accepted: 1,
  })
  const [member] = await service.members(tenant)
  expect(member).toMatchObject({ eventCount: 3, conversation: { id: '31', status: 'resolved' } })
  const body = example('/api/audience/{id}', 'put')
  const put = await service.call('PUT', `/api/audience/${member?.id}`, {
    headers: { ...tenant.headers, 'content-type': 'application/json' },
    body,
  })
  expect(put.json).toMatchObject(JSON.parse(body))
})

it('makes a typed client that works', async () => {
  const client = new AudienceClient(service.url, {
    clientId: tenant.headers['x-client-id'],
    clientSecret: tenant.headers['x-client-secret'],
    apiKey: tenant.headers['x-api-key'],
  })
  const page = await client.listAudience({ limit: 1, relationship: 'following' })
  const [member] = page?.data ?? []
  if (member === undefined || 'deletedAt' in member) throw new Error('no member')
  expect(await client.updateMember(member.id, { tags: ['new'] })).toMatchObject({ tags: ['new'] })
  const refused = client.updateMember(member.id, { tags: ['newer'] }, '"1"')
  await expect(refused).rejects.toThrow(ApiError)
  expect((await client.listAudience({ tag: 'new' }))?.data).toHaveLength(1)
  await client.eraseMember(member.id)
  expect((await client.listAudience())?.data).toEqual([])
})
