/** CONTRACT: POST /api/line-oa/verify. */
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { MISBEHAVIOURS, type Misbehaviour } from '../tools/simulator/misbehaviour.ts'
import { type SimulatedPlatform, simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant, createTestDatabase, type Tenant } from './support/database.ts'
import { type Answer, type Service, startApp, startAppForTest } from './support/service.ts'

let database: PostgresDatabase
let platform: SimulatedPlatform
let service: Service

beforeAll(async () => {
  ;({ database } = await createTestDatabase())
  platform = await simulatePlatform()
  service = await startApp(database, { config: { lineApiUrl: platform.url } })
})
beforeEach(() => {
  platform.misbehave(null)
  platform.settings.isVerified = true
  platform.calls.length = 0
})
afterAll(async () => {
  await service.app.close()
  await platform.close()
  await database.close()
})

/** An account that is set up on the platform in every respect. */
async function goodTenant(columns: Parameters<typeof addTenant>[1] = {}): Promise<Tenant> {
  const { channelSecret, channelAccessToken, botUserId } = platform.account
  const tenant = await addTenant(database, { channelSecret, channelAccessToken, botUserId, ...columns })
  platform.settings.webhook = { endpoint: `${service.url}/api/line/${tenant.accountId}`, active: true }
  return tenant
}

const verify = (who: Tenant, body?: unknown, on = service): Promise<Answer> =>
  on.call('POST', '/api/line-oa/verify', {
    headers: { ...who.headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })

const okOf = ({ json }: Answer) =>
  Object.fromEntries((json.checks as Array<{ name: string; ok: boolean }>).map(({ name, ok }) => [name, ok]))
const messageOf = ({ json }: Answer, name: string): string =>
  json.checks.find((check: { name: string }) => check.name === name)?.message

describe('an account that is set up', () => {
  it('is verified, and the outcome is stored', async () => {
    const tenant = await goodTenant()
    const answer = await verify(tenant)
    const { status, json } = answer
    expect(status).toBe(200)
    expect(json).toMatchObject({
      verified: true,
      account: {
        userId: platform.account.botUserId,
        basicId: platform.account.basicId,
        displayName: 'Corner Coffee',
        premiumId: null,
      },
      accountType: 'verified_or_premium',
      webhook: { ...platform.settings.webhook, matches: true },
      checkedAt: expect.stringMatching(/Z$/),
    })
    expect(Object.entries(okOf(answer))).toEqual([
      ['access_token', true],
      ['identity', true],
      ['webhook_endpoint', true],
      ['webhook_active', true],
    ])
    const [stored] = await database.query(
      'select verification, verified_at is not null as timed from official_account where id = $1',
      [tenant.accountId],
    )
    expect(stored).toEqual({ verification: json, timed: true })
  })

  it('is called with a new stateless token where no access token is stored', async () => {
    const { channelId, channelSecret, botUserId } = platform.account
    const tenant = await addTenant(database, { channelId, channelSecret, botUserId })
    for (const _ of [1, 2]) {
      platform.calls.length = 0
      expect((await verify(tenant)).json.account.userId).toBe(botUserId)
      expect(platform.calls.slice(0, 2)).toEqual(['POST /oauth2/v3/token', 'GET /v2/bot/info'])
      expect(platform.calls.filter((call) => call.includes('token'))).toHaveLength(1)
    }
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
      expect(json).toMatchObject({ verified: false, webhook: null, accountType: 'unknown' })
      expect(json.checks.at(-1)).toMatchObject({ name: 'identity', ok: false })
    }
  })

  it('is compared with the basic id that is stored', async () => {
    const { channelAccessToken, botUserId, basicId } = platform.account
    for (const [stored, ok] of [
      [basicId, true],
      ['@another', false],
    ] as const) {
      const tenant = await addTenant(database, { channelAccessToken, botUserId, basicId: stored })
      const { checks } = (await verify(tenant)).json
      expect(checks).toContainEqual(expect.objectContaining({ name: 'identity', ok }))
    }
  })

  it('that may not list its followers is an unverified one, which is no fault', async () => {
    const tenant = await goodTenant()
    platform.settings.isVerified = false
    expect((await verify(tenant)).json).toMatchObject({ verified: true, accountType: 'unverified' })
  })
})

describe('the webhook', () => {
  it('has no address: the check names the one to set', async () => {
    const tenant = await goodTenant()
    platform.settings.webhook = null
    const answer = await verify(tenant, { testWebhook: true })
    expect(answer.json).toMatchObject({
      verified: false,
      webhook: { endpoint: null, active: false, matches: false },
    })
    expect(okOf(answer)).toMatchObject({
      webhook_endpoint: false,
      webhook_active: false,
      webhook_test: false,
    })
    expect(messageOf(answer, 'webhook_endpoint')).toContain(`/api/line/${tenant.accountId}`)
    expect(platform.calls).not.toContain('POST /v2/bot/channel/webhook/test')
  })

  it('is compared with PUBLIC_URL, and by its path alone where that is unset', async () => {
    const tenant = await goodTenant()
    const named = await startAppForTest(database, {
      config: { lineApiUrl: platform.url, publicUrl: 'https://audience.example.com/oa' },
    })
    const id = tenant.accountId
    for (const [endpoint, byPath, byUrl] of [
      [`https://audience.example.com/oa/api/line/${id}`, false, true],
      [`https://audience.example.com/oa/api/Line/${id}`, false, true],
      [`https://another.example.com/oa/api/line/${id}`, false, false],
      [`https://audience.example.com/api/line/${id}`, true, false],
      [`https://anything.example.com/api/Line/${id}`, true, false],
      [`https://anything.example.com/api/line/${id}0`, false, false],
      ['not an address', false, false],
      ['foo:bar', false, false],
    ] as const) {
      platform.settings.webhook = { endpoint, active: true }
      expect((await verify(tenant)).json.webhook.matches, endpoint).toBe(byPath)
      expect((await verify(tenant, {}, named)).json.webhook.matches, endpoint).toBe(byUrl)
    }
  })

  it('that is switched off is told so', async () => {
    const tenant = await goodTenant()
    platform.settings.webhook = { endpoint: `${service.url}/api/line/${tenant.accountId}`, active: false }
    const answer = await verify(tenant)
    expect(answer.json.verified).toBe(false)
    expect(messageOf(answer, 'webhook_active')).toContain('Use webhook')
  })

  it('is tested when asked for: the platform sends a delivery, and tells what became of it', async () => {
    const tenant = await goodTenant()
    const good = await verify(tenant, { testWebhook: true })
    expect(good.json).toMatchObject({
      verified: true,
      webhook: { test: { success: true, statusCode: 200, reason: 'OK' } },
    })
    await database.query(`update official_account set channel_secret = 'another' where id = $1`, [
      tenant.accountId,
    ])
    const forged = await verify(tenant, { testWebhook: true })
    expect(okOf(forged)).toMatchObject({ webhook_test: false })
    expect(messageOf(forged, 'webhook_test')).toContain('channel secret')
    platform.settings.webhook = { endpoint: `http://127.0.0.1:9/api/line/${tenant.accountId}`, active: true }
    expect(messageOf(await verify(tenant, { testWebhook: true }), 'webhook_test')).toContain('cannot connect')
  })

  it('is tested 60 times an hour and no more: then 503 with the time that is left, without a call', async () => {
    const tenant = await goodTenant()
    await database.query(
      `update official_account set webhook_test_hour = now() - interval '20 minutes', webhook_test_count = 59
        where id = $1`,
      [tenant.accountId],
    )
    expect((await verify(tenant, { testWebhook: true })).status).toBe(200)
    platform.calls.length = 0
    const refused = await verify(tenant, { testWebhook: true })
    expect(refused.status).toBe(503)
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(2300)
    expect(platform.calls).not.toContain('POST /v2/bot/channel/webhook/test')
    await database.query(
      `update official_account set webhook_test_hour = now() - interval '61 minutes' where id = $1`,
      [tenant.accountId],
    )
    expect((await verify(tenant, { testWebhook: true })).status).toBe(200)
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
      webhook: null,
    })
    expect((await verify(unsendable)).json).toMatchObject({
      verified: false,
      checks: [{ name: 'access_token', ok: false }],
    })
  })
})

describe('a platform that is away, slow, limiting or out of its mind', () => {
  const between = [304, 407, 451].map((status): [string, Misbehaviour] => [
    `a proxy that answers ${status} for it`,
    (_, response) => response.writeHead(status).end(),
  ])

  it.each([...Object.entries(MISBEHAVIOURS), ...between])(
    '(%s) is 503 with Retry-After, within 10 s, and nothing is stored',
    async (name, how) => {
      const tenant = await goodTenant()
      platform.misbehave(how)
      const answer = await verify(tenant).finally(() => platform.misbehave(null))
      expect(answer.json).toMatchObject({ statusCode: 503, error: 'Service Unavailable' })
      const retryAfter = Number(answer.headers.get('retry-after'))
      expect(retryAfter).toBeGreaterThan(0)
      if (name === 'limit') expect(retryAfter).toBe(17)
      expect(answer.text).not.toContain(platform.account.channelAccessToken)
      const [stored] = await database.query('select verification from official_account where id = $1', [
        tenant.accountId,
      ])
      expect(stored).toEqual({ verification: null })
    },
  )

  it('for a moment is asked again, and nobody notices', async () => {
    const tenant = await goodTenant()
    let failures = 0
    platform.misbehave((_, response) => {
      failures += 1
      if (failures === 2) platform.misbehave(null)
      response.writeHead(502).end()
    })
    expect((await verify(tenant)).json.verified).toBe(true)
    expect(platform.calls.filter((call) => call === 'GET /v2/bot/info')).toHaveLength(3)
  })

  it('is never asked a second time to test the webhook: tests are counted', async () => {
    const tenant = await goodTenant()
    const test = 'POST /v2/bot/channel/webhook/test'
    platform.misbehave((_, response) => response.writeHead(500).end('{}'), /webhook\/test/)
    expect((await verify(tenant, { testWebhook: true })).status).toBe(503)
    expect(platform.calls.filter((call) => call === test)).toHaveLength(1)
  })

  it('answers whatever it likes: never a 5xx but 503, never a secret (property)', async () => {
    const { channelAccessToken, channelSecret, botUserId, basicId } = platform.account
    const tenant = await goodTenant()
    const word = fc.oneof(
      fc.constantFrom(
        channelAccessToken,
        channelSecret,
        botUserId,
        basicId,
        '\u0000',
        'U\ud800',
        '__proto__',
      ),
      fc.string({ unit: 'binary', maxLength: 40 }),
    )
    const names = [
      'userId',
      'basicId',
      'displayName',
      'premiumId',
      'userIds',
      'next',
      'endpoint',
      'active',
      'reason',
    ]
    const field = fc.oneof(
      word,
      fc.boolean(),
      fc.double(),
      fc.constant(null),
      fc.array(word, { maxLength: 3 }),
    )
    const likely = fc.dictionary(fc.constantFrom(...names), field)
    const body = fc.oneof(
      fc
        .record({
          userId: fc.constant(botUserId),
          basicId: word,
          displayName: word,
          endpoint: word,
          active: fc.boolean(),
        })
        .map((it) => JSON.stringify(it)),
      likely.map((it) => JSON.stringify(it)),
      fc.json(),
      fc.string(),
      fc.constant('['.repeat(50_000)),
    )
    // 429 and the 5xx are asked again, which takes its time: they have their tests above.
    const status = fc.constantFrom(200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 418)
    await fc.assert(
      fc.asyncProperty(
        fc.infiniteStream(fc.tuple(status, body)),
        fc.boolean(),
        async (answers, testWebhook) => {
          platform.misbehave((_, response) => {
            const [code, text] = answers.next().value as [number, string]
            response.writeHead(code).end(code === 204 ? '' : text)
          })
          const answer = await verify(tenant, { testWebhook })
          expect([200, 503]).toContain(answer.status)
          expect(answer.text).not.toContain(channelAccessToken)
          expect(answer.text).not.toContain(channelSecret)
        },
      ),
      { numRuns: 60 },
    )
  }, 60_000)
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
