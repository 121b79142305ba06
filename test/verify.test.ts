/** CONTRACT: POST /api/line-oa/verify. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../src/postgres/database.ts'
import { type Misbehaviour, type SimulatedPlatform, simulatePlatform } from '../src/simulate/platform.ts'
import { addTenant, createTestDatabase, type Tenant } from './support/database.ts'
import { type Answer, type Service, startApp } from './support/service.ts'

let database: Database
let platform: SimulatedPlatform
let service: Service

beforeAll(async () => {
  ;({ database } = await createTestDatabase())
  platform = await simulatePlatform()
  service = await startApp(database, { config: { lineApiUrl: platform.url } })
})
afterAll(async () => {
  await service.app.close()
  await platform.close()
  await database.close()
})

const goodTenant = () =>
  addTenant(database, {
    channelAccessToken: platform.account.channelAccessToken,
    botUserId: platform.account.botUserId,
  })

const verify = (who: Tenant, body?: unknown): Promise<Answer> =>
  service.call('POST', '/api/line-oa/verify', {
    headers: { ...who.headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })

describe('an account that is set up', () => {
  it('is verified, and the outcome is stored', async () => {
    const tenant = await goodTenant()
    const { status, json } = await verify(tenant)
    expect(status).toBe(200)
    expect(json).toMatchObject({
      verified: true,
      account: {
        userId: platform.account.botUserId,
        basicId: platform.account.basicId,
        displayName: 'Corner Coffee',
        premiumId: null,
      },
      checks: [
        { name: 'access_token', ok: true },
        { name: 'identity', ok: true },
      ],
      checkedAt: expect.stringMatching(/Z$/),
    })
    const [stored] = await database.query(
      'select verification, verified_at is not null as timed from official_account where id = $1',
      [tenant.accountId],
    )
    expect(stored).toEqual({ verification: json, timed: true })
  })

  it('is called with a stateless token where no access token is stored', async () => {
    const { channelId, channelSecret, botUserId } = platform.account
    const tenant = await addTenant(database, { channelId, channelSecret, botUserId })
    platform.calls.length = 0
    expect((await verify(tenant)).json.verified).toBe(true)
    expect(platform.calls).toEqual(['POST /oauth2/v3/token', 'GET /v2/bot/info'])
  })

  it('is compared with what the caller claims', async () => {
    const tenant = await goodTenant()
    const { basicId, botUserId } = platform.account
    expect((await verify(tenant, {})).json.verified).toBe(true)
    expect((await verify(tenant, { basicId: basicId.slice(1).toUpperCase(), botUserId })).json.verified).toBe(
      true,
    )
    for (const claim of [{ basicId: '@another' }, { botUserId: 'Uanother' }]) {
      const { json } = await verify(tenant, claim)
      expect(json.verified).toBe(false)
      expect(json.checks.at(-1)).toMatchObject({ name: 'identity', ok: false })
    }
  })
})

describe('what the platform refuses', () => {
  it('is verified: false with the failed check', async () => {
    const wrongToken = await addTenant(database, { channelAccessToken: 'wrong' })
    const wrongSecret = await addTenant(database, { channelId: '1', channelSecret: 'wrong' })
    const nothing = await addTenant(database)
    const anothersToken = await addTenant(database, {
      channelAccessToken: platform.account.channelAccessToken,
      botUserId: 'Uanother',
    })
    const unsendable = await addTenant(database, { channelAccessToken: 'two\nlines' })
    for (const tenant of [wrongToken, wrongSecret, nothing]) {
      const { status, json } = await verify(tenant)
      expect(status).toBe(200)
      expect(json).toMatchObject({
        verified: false,
        account: null,
        checks: [{ name: 'access_token', ok: false }],
      })
    }
    expect((await verify(anothersToken)).json).toMatchObject({
      verified: false,
      checks: [{ ok: true }, { name: 'identity', ok: false }],
    })
    expect((await verify(unsendable)).json).toMatchObject({
      verified: false,
      checks: [{ name: 'access_token', ok: false }],
    })
  })
})

describe('a platform that is away, slow, limiting or out of its mind', () => {
  const misbehaviours: Array<[string, Misbehaviour]> = [
    ['cuts the connection', (request) => request.socket.destroy()],
    ['answers 500', (_, response) => response.writeHead(500).end('{}')],
    ['limits', (_, response) => response.writeHead(429, { 'retry-after': '17' }).end('{}')],
    ['answers HTML', (_, response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>')],
    ['answers an empty object', (_, response) => response.writeHead(200).end('{}')],
    ['answers null', (_, response) => response.writeHead(200).end('null')],
    ['redirects', (_, response) => response.writeHead(302, { location: 'http://127.0.0.1:9/' }).end()],
    ['never answers', () => undefined],
    [
      'stops in the middle',
      (_, response) => void response.writeHead(200, { 'content-length': '100' }).write('{'),
    ],
    [
      'answers without end',
      (_, response) => {
        response.writeHead(200)
        const more = () => !response.destroyed && response.write('x'.repeat(65_536), () => setImmediate(more))
        more()
      },
    ],
  ]

  it.each(misbehaviours)(
    'that %s is 503 with Retry-After, within 10 s, and nothing is stored',
    async (_what, how) => {
      const tenant = await goodTenant()
      platform.misbehave(how)
      const answer = await verify(tenant).finally(() => platform.misbehave(null))
      expect(answer.json).toMatchObject({ statusCode: 503, error: 'Service Unavailable' })
      expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
      expect(answer.text).not.toContain(platform.account.channelAccessToken)
      const [stored] = await database.query('select verification from official_account where id = $1', [
        tenant.accountId,
      ])
      expect(stored).toEqual({ verification: null })
    },
  )
})

it('a scope without an account is 404, without any call', async () => {
  const tenant = await goodTenant()
  await database.query('update api_key set channel_oa_id = 999999 where id = $1', [tenant.keyId])
  platform.calls.length = 0
  expect((await verify(tenant)).json).toMatchObject({ statusCode: 404 })
  expect(platform.calls).toEqual([])
})

it('a bad body is 400', async () => {
  const tenant = await goodTenant()
  for (const body of ['{', '[]', 'null', { basicId: 7 }, { testWebhook: 'yes' }, { colour: 'red' }]) {
    expect((await verify(tenant, body)).status, JSON.stringify(body)).toBe(400)
  }
})
