/** CONTRACT: POST /api/line-oa/verify, with a platform that is unreachable, slow, rate limiting or wrong. */
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { LineApi } from '../src/line-api/client.ts'
import { MISBEHAVIOURS, type Misbehaviour } from '../tools/simulator/misbehaviour.ts'
import type { Tenant } from './support/database.ts'
import { startApp } from './support/service.ts'
import { setUpVerification } from './support/verification.ts'

const { database, platform, addVerifiable, verify } = await setUpVerification()
/** With a tenth of the real time limits, which test/faults/slow-platform.test.ts has. */
const impatient = await startApp(database, {
  lineApi: new LineApi(platform.url, { attemptMs: 300, callMs: 600 }),
})
afterAll(() => impatient.app.close())

const callsTo = (call: string) => platform.calls.filter((made) => made === call)

describe('an unavailable platform', () => {
  const byProxy = [304, 407, 451].map((status): [string, Misbehaviour] => [
    `a proxy that answers ${status}`,
    (_, response) => response.writeHead(status).end(),
  ])

  it.each([...Object.entries(MISBEHAVIOURS), ...byProxy])(
    '(%s) is answered with 503 and Retry-After, and nothing is stored',
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

  it('that sends Retry-After has it passed on', async () => {
    const tenant = await addVerifiable()
    platform.misbehave(MISBEHAVIOURS.limit as Misbehaviour)
    expect((await verify(tenant)).headers.get('retry-after')).toBe('17')
  })

  it('is called again, so that a short outage has no effect', async () => {
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

  it('that limits the rate without Retry-After is called once more, after a second', async () => {
    const tenant = await addVerifiable()
    const calledAtMs: number[] = []
    platform.misbehave((_, response) => {
      calledAtMs.push(performance.now())
      response.writeHead(429).end('{}')
    })
    expect((await verify(tenant)).status).toBe(503)
    const [first = 0, second = 0] = calledAtMs
    expect(calledAtMs).toHaveLength(2)
    expect(second - first).toBeGreaterThanOrEqual(990)
  })

  it('is asked in JSON to test the webhook URL that it returned', async () => {
    const tenant = await addVerifiable()
    const bodies: string[] = []
    platform.misbehave((request, response) => {
      let body = `${request.headers['content-type']} `
      request.on('data', (chunk) => {
        body += chunk
      })
      request.on('end', () => {
        bodies.push(body)
        response.writeHead(500).end('{}')
      })
    }, /webhook\/test/)
    await verify(tenant, { testWebhook: true })
    expect(bodies).toEqual([
      `application/json ${JSON.stringify({ endpoint: platform.settings.webhook?.endpoint })}`,
    ])
  })

  it('is not called again to test the webhook, because tests are limited', async () => {
    const tenant = await addVerifiable()
    platform.misbehave((_, response) => response.writeHead(500).end('{}'), /webhook\/test/)
    expect((await verify(tenant, { testWebhook: true })).status).toBe(503)
    expect(callsTo('POST /v2/bot/channel/webhook/test')).toHaveLength(1)
  })
})

describe('any answer of the platform', () => {
  const { channelAccessToken, channelSecret, botUserId, basicId } = platform.account
  const word = fc.oneof(
    fc.constantFrom(channelAccessToken, channelSecret, botUserId, basicId, '\u0000', 'U\ud800', '__proto__'),
    fc.string({ unit: 'binary', maxLength: 40 }),
  )
  const value = fc.oneof(word, fc.boolean(), fc.double(), fc.constant(null), fc.array(word, { maxLength: 3 }))
  const names = 'userId basicId displayName premiumId userIds next endpoint active reason'.split(' ')
  const plausible = fc.record({
    userId: fc.constant(botUserId),
    basicId: word,
    displayName: word,
    endpoint: word,
    active: fc.boolean(),
  })
  const body = fc.oneof(
    plausible.map((fields) => JSON.stringify(fields)),
    fc.dictionary(fc.constantFrom(...names), value).map((fields) => JSON.stringify(fields)),
    fc.json(),
    fc.string(),
    fc.constant('['.repeat(50_000)),
  )
  // 429 and 5xx cause retries with backoff. The tests above cover them.
  const status = fc.constantFrom(200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 418)

  it('leads to 200 or 503, and never to a secret in the response (property)', async () => {
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
})
