/** Authentication by three headers, and the scope of the API key. */
import { describe, expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addCredentials, addTenant, openDatabase } from '../support/database.ts'
import { insertRow } from '../support/load.ts'
import { setUpService, startApp } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

const PROTECTED = [
  ['GET', '/api/audience'],
  ['PUT', '/api/audience/1'],
  ['DELETE', '/api/audience/1'],
  ['POST', '/api/line-oa/verify'],
] as const

describe.each(PROTECTED)('%s %s', (method, path) => {
  it.each(['x-client-id', 'x-client-secret', 'x-api-key'] as const)(
    'answers 401 if %s is missing, empty or blank',
    async (name) => {
      const { [name]: _, ...others } = tenant.headers
      const noBreakSpace = Buffer.from('\u00a0', 'utf8').toString('latin1')
      for (const headers of [others, { ...others, [name]: '' }, { ...others, [name]: noBreakSpace }]) {
        const answer = await service.call(method, path, { headers: headers as Record<string, string> })
        const { requestId, ...json } = answer.json
        expect(json).toEqual({
          statusCode: 401,
          error: 'Unauthorized',
          message: 'Missing credentials in headers',
        })
        expect(requestId).toEqual(expect.any(String))
      }
    },
  )

  it('answers 401 to an unknown client, a wrong secret and another client’s secret', async () => {
    const other = await addTenant(database)
    for (const wrong of [
      { 'x-client-id': 'nobody' },
      { 'x-client-secret': 'wrong' },
      { 'x-client-secret': other.headers['x-client-secret'] },
      { 'x-client-secret': `${tenant.headers['x-client-secret']}x` },
    ]) {
      const answer = await service.call(method, path, { headers: { ...tenant.headers, ...wrong } })
      expect(answer.status).toBe(401)
      expect(answer.json.message).toBe('Invalid client credentials')
    }
  })

  it('refuses a client on the first request after its status changed', async () => {
    const revoked = await addTenant(database)
    const before = await service.call(method, path, { headers: revoked.headers })
    expect(before.status).not.toBe(401)
    await database.query(`update api_client set status = 'suspended' where id = $1`, [revoked.clientRowId])
    const after = await service.call(method, path, { headers: revoked.headers })
    expect(after.status).toBe(401)
    expect(after.json.message).toBe('Invalid client credentials')
  })

  it('answers 500, never 401, when the database fails', async () => {
    const nowhere = openDatabase('postgres://nobody@127.0.0.1:1/none')
    const broken = await startApp(nowhere)
    const answer = await broken.call(method, path, { headers: tenant.headers })
    expect(answer.status).toBe(500)
    expect(answer.text).not.toMatch(/ECONNREFUSED|127\.0\.0\.1/)
  })
})

const OUTCOMES = {
  'GET /api/audience': { status: 200, text: /^null$/ },
  'PUT /api/audience/1': { status: 500, text: /"message":"The request could not be completed"/ },
  'DELETE /api/audience/1': { status: 400, text: /"message":"Step 1: / },
  'POST /api/line-oa/verify': { status: 404, text: /"statusCode":404/ },
}

describe('a key that is not active or belongs to another client', () => {
  async function unknownKeys(): Promise<Array<Record<string, string>>> {
    const other = await addTenant(database)
    const revoked = await addCredentials(database, tenant.accountId, tenant.organizationId)
    await database.query(`update api_key set status = 'Active' where id = $1`, [revoked.keyId])
    return [
      { ...tenant.headers, 'x-api-key': 'unknown' },
      { ...tenant.headers, 'x-api-key': other.headers['x-api-key'] },
      { ...tenant.headers, 'x-api-key': 'ключ' },
      revoked.headers,
    ].map((headers) => ({
      ...headers,
      'x-api-key': Buffer.from(headers['x-api-key'], 'utf8').toString('latin1'),
    }))
  }

  async function expectOutcome(...[method, path, init]: Parameters<typeof service.call>) {
    const { status, text } = OUTCOMES[`${method} ${path}` as keyof typeof OUTCOMES]
    const answer = await service.call(method, path, init)
    expect(answer).toMatchObject({ status, text: expect.stringMatching(text) })
  }

  it.each(PROTECTED)('gets the outcome of %s %s', async (method, path) => {
    for (const headers of await unknownKeys()) await expectOutcome(method, path, { headers })
  })

  const json = { 'content-type': 'application/json' }
  const bodies: Array<{ headers?: Record<string, string>; body?: string }> = [
    {},
    { headers: json, body: '{"tags":' },
    { headers: json, body: '{"tags":7}' },
    { headers: { 'content-type': 'image/png' }, body: 'png' },
  ]
  it.each(PROTECTED.slice(1))('gets the same outcome of %s %s with any body', async (method, path) => {
    for (const { body, headers } of bodies) {
      const unknown = { ...headers, ...tenant.headers, 'x-api-key': 'unknown' }
      await expectOutcome(method, path, { headers: unknown, ...(body && { body }) })
    }
  })

  it.each([
    ['GET', '/api/audience?limit=0&cursor=nonsense&unknown=1', 200],
    ['PUT', '/api/audience/abc', 500],
    ['PUT', `/api/audience/${'9'.repeat(5000)}`, 500],
    ['DELETE', '/api/audience/1e3', 400],
    ['DELETE', '/api/audience/9223372036854775808', 400],
    ['DELETE', `/api/audience/${'x'.repeat(9000)}`, 400],
  ])('gets the same outcome of %s %.40s', async (method, path, status) => {
    const answer = await service.call(method, path, {
      headers: { ...tenant.headers, 'x-api-key': 'unknown' },
    })
    expect(answer.status).toBe(status)
  })

  it('changes its outcome on the first request after a revocation and a reactivation', async () => {
    const { headers, keyId } = await addCredentials(database, tenant.accountId, tenant.organizationId)
    const list = async () => (await service.call('GET', '/api/audience', { headers })).text
    expect(await list()).not.toBe('null')
    await database.query(`update api_key set status = 'revoked' where id = $1`, [keyId])
    expect(await list()).toBe('null')
    await database.query(`update api_key set status = 'active' where id = $1`, [keyId])
    expect(await list()).not.toBe('null')
  })
})

/** Other programs insert rows with ids of their own choice: any int64 is one. */
it.each([0n, -(2n ** 63n)])(
  'serves a client, a key, an account and an organization with the id %i',
  async (id) => {
    const headers = { 'x-client-id': `client ${id}`, 'x-client-secret': 'secret', 'x-api-key': `key ${id}` }
    const add = (table: string, columns: object) => insertRow(database, table, { id, ...columns })
    await add('organization', { name: 'any' })
    const { channelSecret: channel_secret } = tenant
    await add('official_account', { organization_id: id, name: 'any', channel_secret })
    await add('api_client', { client_id: headers['x-client-id'], client_secret: 'secret' })
    const scope = { channel_oa_id: id, organization_id: id }
    await add('api_key', { api_client_id: id, key: headers['x-api-key'], ...scope })
    const any = { ...tenant, accountId: id, organizationId: id, clientRowId: id, keyId: id, headers }
    const delivered = await service.deliver(any, [lineEvent('follow', 'U1')])
    expect(delivered.status).toBe(200)
    const page = await service.call('GET', '/api/audience', { headers })
    expect(page.json.data).toHaveLength(1)
    const [{ id: memberId }] = page.json.data
    expect((await service.put(any, memberId, { tags: ['new'] })).json.tags).toEqual(['new'])
    const verification = await service.call('POST', '/api/line-oa/verify', { headers })
    expect(verification.json).toMatchObject({ verified: false })
    expect((await service.erase(any, memberId)).status).toBe(204)
  },
)

it('accepts credentials in UTF-8', async () => {
  const { headers, clientRowId } = await addCredentials(database, tenant.accountId, tenant.organizationId)
  await database.query(`update api_client set client_id = 'ลูกค้า' where id = $1`, [clientRowId])
  const clientId = Buffer.from('ลูกค้า', 'utf8').toString('latin1')
  const answer = await service.call('GET', '/api/audience', {
    headers: { ...headers, 'x-client-id': clientId },
  })
  expect(answer.status).toBe(200)
})
