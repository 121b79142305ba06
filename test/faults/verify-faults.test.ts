/** POST /api/line-oa/verify, with a platform that is unreachable, slow, rate limiting or wrong. */
import { text } from 'node:stream/consumers'
import fc from 'fast-check'
import { afterAll, expect, it } from 'vitest'
import { LineApi } from '../../src/line-api/client.ts'
import { MISBEHAVIOURS, type Misbehaviour } from '../../tools/simulator/misbehaviour.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { startApp } from '../support/service.ts'
import { setUpVerification } from '../support/verification.ts'

const { database, platform, addVerifiable, verify } = await setUpVerification()
/** With a tenth of the real time limits. */
const impatient = await startApp(database, {
  lineApi: new LineApi(platform.url, { timeouts: { attemptMs: 300, callMs: 600 } }),
})
afterAll(() => impatient.app.close())

const callsTo = (call: string) => platform.calls.filter((made) => made.split('?')[0] === call)

const byProxy = [304, 400, 403, 404, 407, 451].map((status): [string, Misbehaviour] => [
  `a proxy that answers ${status}`,
  (_, response) => response.writeHead(status).end(status === 304 ? '' : '<h1>Blocked</h1>'),
])

it.each([...Object.entries(MISBEHAVIOURS), ...byProxy])(
  'an unavailable platform (%s) is answered with 503 and Retry-After, and nothing is stored',
  async (_, misbehaviour) => {
    const tenant = await addVerifiable()
    platform.misbehave(misbehaviour)
    const answer = await verify(tenant, undefined, impatient)
    expect(answer.json).toMatchObject({ statusCode: 503, error: 'Service Unavailable' })
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(answer.text).not.toContain(platform.account.channelAccessToken)
    const [stored] = await database.query('select verification from official_account where id = $1', [
      tenant.accountId,
    ])
    expect(stored).toEqual({ verification: null })
  },
)

it('an unavailable platform that sends Retry-After has it passed on', async () => {
  const tenant = await addVerifiable()
  platform.misbehave(MISBEHAVIOURS.limit as Misbehaviour)
  expect((await verify(tenant)).headers.get('retry-after')).toBe('17')
})

it('an unavailable platform is called again, so that a short outage has no effect', async () => {
  const tenant = await addVerifiable()
  let failures = 0
  platform.misbehave((_, response) => {
    failures += 1
    if (failures === 2) platform.misbehave(null)
    response.writeHead(502).end()
  })
  expect((await verify(tenant)).json.verified).toBe(true)
  expect(callsTo('GET /v2/bot/info')).toHaveLength(3)
})

it.each<[string, number, Record<string, string>]>([
  ['that limits the rate', 429, {}],
  ['that asks for a pause', 503, { 'retry-after': '1' }],
])('an unavailable platform %s is not called again', async (_, status, headers) => {
  const tenant = await addVerifiable()
  platform.misbehave((_request, response) => response.writeHead(status, headers).end('{}'))
  expect((await verify(tenant)).status).toBe(503)
  expect(callsTo('GET /v2/bot/info')).toHaveLength(1)
})

it('an unavailable platform is asked once, in JSON, to test the webhook URL that it returned, because tests are limited', async () => {
  const tenant = await addVerifiable()
  const asked: string[] = []
  platform.misbehave(async (request, response) => {
    asked.push(`${request.headers['content-type']} ${await text(request)}`)
    response.writeHead(500).end('{}')
  }, /webhook\/test/)
  expect((await verify(tenant, { testWebhook: true })).status).toBe(503)
  const { endpoint } = platform.settings.webhook ?? {}
  expect(asked).toEqual([`application/json ${JSON.stringify({ endpoint })}`])
})

const REASON = 'The request body has 1 error(s)'
const refuse = (status: number, body: unknown, only?: RegExp) =>
  platform.misbehave((_, response) => {
    response.writeHead(status).end(typeof body === 'string' ? body : JSON.stringify(body))
  }, only)
const failureOf = async (tenant: Tenant, body?: unknown): Promise<string> => {
  const { status, json } = await verify(tenant, body)
  expect(status).toBe(200)
  expect(json.verified).toBe(false)
  return json.checks.find(({ ok }: { ok: boolean }) => !ok).message
}

it('a refusal of the platform of the token (401) advises to issue a new one, whichever call meets it', async () => {
  const advice = /^LINE refuses the channel access token \(status 401\): issue a new one/
  for (const call of [/info/, /webhook\/endpoint/, /webhook\/test/]) {
    refuse(401, { message: REASON }, call)
    expect(await failureOf(await addVerifiable(), { testWebhook: true })).toMatch(advice)
  }
})

it.each([
  [/info/, 400, 'does not describe the account'],
  [/webhook\/endpoint/, 403, 'does not return the webhook URL'],
  [/webhook\/test/, 499, 'does not test the webhook'],
])('a refusal of the platform of %s says what LINE said', async (call, status, consequence) => {
  refuse(status, { message: REASON }, call)
  expect(await failureOf(await addVerifiable(), { testWebhook: true })).toBe(
    `LINE ${consequence} (status ${status}): ${REASON}`,
  )
})

it('a refusal of the platform of a token for channel id and secret says what LINE said, unless they are wrong', async () => {
  const { channelId, channelSecret, botUserId } = platform.account
  const tenant = await addTenant(database, { channelId, channelSecret, botUserId })
  const body = { error: 'invalid_request', error_description: REASON }
  refuse(403, body, /token/)
  expect(await failureOf(tenant)).toBe(`LINE issues no access token (status 403): ${REASON}`)
  refuse(400, body, /token/)
  expect(await failureOf(tenant)).toMatch(/refuses the channel id and secret \(status 400\): compare them/)
})

it('a refusal of the platform is quoted in one line of at most 300 characters, without secrets and control characters', async () => {
  const { channelAccessToken, channelSecret } = platform.account
  const said = `\u001b[31mtoken\r\n${channelAccessToken}\u2028secret ${channelSecret}\u202e\0 end`
  refuse(403, { message: said })
  expect(await failureOf(await addVerifiable())).toMatch(
    / \(status 403\): \[31mtoken \[secret\] secret \[secret\] end$/,
  )
  refuse(403, { message: 'x'.repeat(100_000) })
  expect(await failureOf(await addVerifiable())).toMatch(/: x{300}$/)
})

const { channelAccessToken, channelSecret, botUserId, basicId } = platform.account
const word = fc.oneof(
  fc.constantFrom(channelAccessToken, channelSecret, botUserId, basicId, '\u0000', 'U\ud800', '__proto__'),
  fc.string({ unit: 'binary', maxLength: 40 }),
)
const fields = Object.fromEntries(
  'userId basicId displayName userIds next endpoint active reason message error_description'
    .split(' ')
    .map((name) => [name, fc.oneof(word, fc.boolean(), fc.double(), fc.constant(null), fc.array(word))]),
)
const body = fc.oneof(
  fc
    .record({ ...fields, userId: fc.constant(botUserId) }, { requiredKeys: [] })
    .map((of) => JSON.stringify(of)),
  fc.json(),
  fc.string(),
  fc.constant('['.repeat(50_000)),
)
// 429 and 5xx cause retries with backoff. The tests above cover them.
const status = fc.constantFrom(200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 418)

it('any answer of the platform leads to 200 or 503, and never to a secret in the response (property)', async () => {
  // Calls about webhooks are limited to 5 per second and account, so the runs take turns with 20 accounts.
  const tenants = await Promise.all(Array.from({ length: 20 }, () => addVerifiable()))
  let run = 0
  await fc.assert(
    fc.asyncProperty(
      fc.infiniteStream(fc.tuple(status, body)),
      fc.boolean(),
      async (answers, testWebhook) => {
        platform.misbehave((_, response) => {
          const [code, text] = answers.next().value as [number, string]
          response.writeHead(code).end(code === 204 ? '' : text)
        })
        run += 1
        const answer = await verify(tenants[run % tenants.length] as Tenant, { testWebhook })
        expect([200, 503]).toContain(answer.status)
        expect(answer.text).not.toContain(channelAccessToken)
        expect(answer.text).not.toContain(channelSecret)
      },
    ),
    { numRuns: 60 },
  )
}, 60_000)
