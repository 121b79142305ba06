/** POST /api/line-oa/verify, with a platform that answers as documented. */
import { expect, it } from 'vitest'
import { MISBEHAVIOURS } from '../../tools/simulator/misbehaviour.ts'
import { addTenant } from '../support/database.ts'
import { type Answer, startApp } from '../support/service.ts'
import { setUpVerification } from '../support/verification.ts'

const { database, platform, addVerifiable, verify } = await setUpVerification()

const WEBHOOK_TEST = 'POST /v2/bot/channel/webhook/test'

const checksOf = ({ json }: Answer) =>
  Object.fromEntries((json.checks as Array<{ name: string; ok: boolean }>).map(({ name, ok }) => [name, ok]))
const messageOf = ({ json }: Answer, name: string): string =>
  json.checks.find((check: { name: string }) => check.name === name)?.message

it('an account that is set up correctly is verified', async () => {
  const answer = await verify(await addVerifiable())
  const { botUserId: userId, basicId } = platform.account
  expect(answer.status).toBe(200)
  expect(answer.json).toMatchObject({
    verified: true,
    account: { userId, basicId, displayName: 'Corner Coffee', premiumId: null },
    accountType: 'verified_or_premium',
    webhook: { ...platform.settings.webhook, matches: true },
    checkedAt: expect.stringMatching(/Z$/),
  })
  expect(Object.entries(checksOf(answer))).toEqual([
    ['access_token', true],
    ['identity', true],
    ['webhook_endpoint', true],
    ['webhook_active', true],
    // Nothing was delivered yet.
    ['channel_secret', null],
    ['redelivery', null],
    ['destination', null],
    ['response_time', null],
    ['module', null],
    ['login_channels', null],
    ['chat_secret', null],
    ['tracking_key', null],
  ])
})

it('an account that is set up correctly is called with a new stateless token each time if no access token is stored', async () => {
  const { channelId, channelSecret, botUserId } = platform.account
  const tenant = await addTenant(database, { channelId, channelSecret, botUserId })
  for (const _ of [1, 2]) {
    platform.calls.length = 0
    expect((await verify(tenant)).json.account.userId).toBe(botUserId)
    expect(platform.calls.slice(0, 2)).toEqual(['POST /oauth2/v3/token', 'GET /v2/bot/info'])
    expect(platform.calls.filter((call) => call.includes('token'))).toHaveLength(1)
  }
})

it('an account that is set up correctly is verified but of type unverified if it may not list its followers', async () => {
  const tenant = await addVerifiable()
  platform.settings.isVerified = false
  expect((await verify(tenant)).json).toMatchObject({ verified: true, accountType: 'unverified' })
})

it('the identity check passes if the claims match, whatever the case of the basic id', async () => {
  const tenant = await addVerifiable()
  const { basicId, botUserId } = platform.account
  expect((await verify(tenant, {})).json.verified).toBe(true)
  const claims = { basicId: basicId.slice(1).toUpperCase(), botUserId }
  expect((await verify(tenant, claims)).json.verified).toBe(true)
})

it.each([{ basicId: '@another' }, { botUserId: 'Uanother' }])(
  'the identity check fails for the claim %o',
  async (claims) => {
    const { json } = await verify(await addVerifiable(), claims)
    expect(json).toMatchObject({ verified: false, webhook: null, accountType: 'unknown' })
    expect(json.checks).toContainEqual(expect.objectContaining({ name: 'identity', ok: false }))
  },
)

it('the webhook check names the URL to set if there is none, and does not test it', async () => {
  const tenant = await addVerifiable()
  platform.settings.webhook = null
  const answer = await verify(tenant, { testWebhook: true })
  expect(answer.json.webhook).toEqual({ endpoint: null, active: false, matches: false })
  expect(checksOf(answer)).toMatchObject({
    webhook_endpoint: false,
    webhook_active: false,
    webhook_test: false,
  })
  expect(messageOf(answer, 'webhook_endpoint')).toContain(`/api/line/${tenant.accountId}`)
  expect(platform.calls).not.toContain(WEBHOOK_TEST)
})

const withoutPublicUrl = [
  ['https://audience.example.com/oa/api/line/ID', false],
  ['https://audience.example.com/api/line/ID', true],
  ['https://anything.example.com/api/Line/ID', true],
  ['not an address', false],
] as const
it.each(withoutPublicUrl)(
  'the webhook check compares only the path of %s without PUBLIC_URL',
  async (endpoint, matches) => {
    const tenant = await addVerifiable()
    platform.settings.webhook = { endpoint: endpoint.replace('ID', String(tenant.accountId)), active: true }
    expect((await verify(tenant)).json.webhook.matches).toBe(matches)
  },
)

it.each([
  ['https://audience.example.com/oa/api/line/ID', true],
  ['https://audience.example.com/oa/api/Line/ID', true],
  ['https://audience.example.com/api/line/ID', false],
] as const)('the webhook check compares all of %s with PUBLIC_URL', async (endpoint, matches) => {
  const publicUrl = 'https://audience.example.com/oa'
  const on = await startApp(database, { config: { lineApiUrl: platform.url, publicUrl } })
  const tenant = await addVerifiable()
  platform.settings.webhook = { endpoint: endpoint.replace('ID', String(tenant.accountId)), active: true }
  expect((await verify(tenant, {}, on)).json.webhook.matches).toBe(matches)
})

it('the webhook test passes if the service accepts the delivery of the platform', async () => {
  expect((await verify(await addVerifiable(), { testWebhook: true })).json).toMatchObject({
    verified: true,
    webhook: { test: { success: true, statusCode: 200, reason: 'OK' } },
  })
})

it('the webhook test answers 503 and asks for an hour at most if LINE asks for a day', async () => {
  const tenant = await addVerifiable()
  platform.misbehave((_, response) => void response.writeHead(429, { 'retry-after': '86400' }).end('{}'))
  const refused = await verify(tenant)
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '3600'])
})

it('the webhook test answers 503 to a response of LINE of one mebibyte', async () => {
  const tenant = await addVerifiable()
  const respond = (spaces: number) => {
    const info = JSON.stringify({ ...platform.account, userId: platform.account.botUserId })
    platform.misbehave((_, response) => void response.end(`${' '.repeat(spaces)}${info}`), /bot\/info/)
    return verify(tenant)
  }
  expect((await respond(100 * 1024)).status).toBe(200)
  expect((await respond(1024 * 1024)).status).toBe(503)
})

it('the webhook test answers 503 if LINE limits its tests, of which it allows 60 an hour', async () => {
  const tenant = await addVerifiable()
  platform.misbehave(MISBEHAVIOURS.limit ?? null, /webhook\/test/)
  const refused = await verify(tenant, { testWebhook: true })
  platform.misbehave(null)
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, expect.stringMatching(/^\d+$/)])
  expect((await verify(tenant, { testWebhook: true })).status).toBe(200)
})

it('a scope whose account does not exist is answered with 404, without a call', async () => {
  const tenant = await addVerifiable()
  await database.query('update api_key set channel_oa_id = 999999 where id = $1', [tenant.keyId])
  expect((await verify(tenant)).json).toMatchObject({ statusCode: 404 })
  expect(platform.calls).toEqual([])
})

it.each([['{'], ['[]'], ['null'], ['{"basicId":7}'], ['{"testWebhook":"yes"}'], ['{"colour":"red"}']])(
  'the body %s is answered with 400',
  async (body) => {
    expect((await verify(await addVerifiable(), body)).status).toBe(400)
  },
)
