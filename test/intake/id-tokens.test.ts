/** An ID token of LINE proves the person of a tracking event. */
import { createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { retryEvent } from '../../src/intake/retry-events.ts'
import { IdTokens } from '../../src/line-api/id-tokens.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { MISBEHAVIOURS, type Misbehaviour } from '../../tools/simulator/misbehaviour.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { readEverything } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { type Answer, NO_BUDGET, type Service, startApp } from '../support/service.ts'

const LOGIN_CHANNEL = '2000000007'
const CERTS = 'GET /oauth2/v2.1/certs'
const HOUR_MS = 3_600_000

const { database } = await createTestDatabase()
const platform = await startPlatform()
const config = { lineApiUrl: platform.url }
const service = await startApp(database, { config })
const tenant = await addTenant(database, { loginChannelIds: [LOGIN_CHANNEL] })

const tokenOf = (userId: string, issuedAtMs = Date.now(), loginChannelId = LOGIN_CHANNEL) =>
  platform.login.idToken({ userId, loginChannelId, issuedAtMs })

/** An event as analytics libraries send it, with a token in its context. */
const page = (idToken: unknown, fields: Record<string, unknown> = {}) => ({
  type: 'page',
  anonymousId: 'a-1',
  context: { idToken, locale: 'th-TH' },
  ...fields,
})

const track = (
  events: unknown[],
  headers: Record<string, string> = {},
  to: Service = service,
): Promise<Answer> =>
  to.call('POST', '/api/tracking', {
    headers,
    body: JSON.stringify({ writeKey: tenant.trackingKey, batch: events }),
  })

const accepted = (count: number) => ({ status: 200, json: { accepted: count, duplicates: 0, rejected: [] } })

const follow = (userId: string) => service.deliver(tenant, [lineEvent('follow', userId)])

const encode = (part: unknown) => Buffer.from(JSON.stringify(part)).toString('base64url')

const claims = (userId: string, fields: Record<string, unknown> = {}) => ({
  iss: 'https://access.line.me',
  sub: userId,
  aud: LOGIN_CHANNEL,
  exp: Math.floor(Date.now() / 1000) + 3_600,
  ...fields,
})

/** A token with any header and claims, signed by a key that is not LINE's. */
function forge(header: Record<string, unknown>, payload: unknown): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const text = `${encode(header)}.${encode(payload)}`
  const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
  return `${text}.${signature.toString('base64url')}`
}

const [key] = platform.login.certs().keys
const KID = key?.kid as string

it('an event with a valid ID token makes its person a member, like an event of LINE that says nothing about following', async () => {
  const userId = randomUserId()
  const event = page(await tokenOf(userId), { timestamp: '2026-01-02T03:04:05.000Z' })
  expect(await track([event])).toMatchObject(accepted(1))
  expect(await service.member(tenant, userId)).toMatchObject({
    relationship: 'unknown',
    eventCount: 1,
    lastSeenAt: '2026-01-02T03:04:05.000Z',
  })
  await follow(userId)
  await track([page(await tokenOf(userId))])
  expect(await service.member(tenant, userId)).toMatchObject({ relationship: 'following', eventCount: 3 })
})

it('an event with a valid ID token is of the person whom the token names, whatever userId it claims', async () => {
  const [userId, claimed] = [randomUserId(), randomUserId()]
  const token = await tokenOf(userId)
  expect(await track([page(token, { userId: claimed }), page(token, { userId: 7 })])).toMatchObject(
    accepted(2),
  )
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 2 })
  expect(await readEverything(database)).not.toContain(claimed)
})

it('an event with a valid ID token may have it in the header X-Line-Id-Token, which counts for events without a token of their own', async () => {
  const [first, second] = [randomUserId(), randomUserId()]
  const headers = { 'x-line-id-token': await tokenOf(first) }
  expect(await track([page(undefined), page(null), page(await tokenOf(second))], headers)).toMatchObject(
    accepted(3),
  )
  expect(await service.member(tenant, first)).toMatchObject({ eventCount: 2 })
  expect(await service.member(tenant, second)).toMatchObject({ eventCount: 1 })
})

it('an event with a valid ID token counts once for each messageId, and nobody else can send it first', async () => {
  const [userId, attacker] = [randomUserId(), randomUserId()]
  const proven = async (person: string) => page(await tokenOf(person), { messageId: 'guessed' })
  await track([{ type: 'page', userId, messageId: 'guessed' }])
  await track([await proven(attacker)])
  const event = await proven(userId)
  expect((await track([event, event])).json).toMatchObject({ accepted: 1, duplicates: 1 })
  expect((await track([event])).json).toMatchObject({ accepted: 0, duplicates: 1 })
})

it('an event with a valid ID token is stored with the signed events, and without its token', async () => {
  const userId = randomUserId()
  const token = await tokenOf(userId)
  const url = `https://liff.example/menu#id_token=${token}`
  await track([page(token, { messageId: 'm-1', context: { idToken: token, page: { url } } })])
  const [row] = await database.query<{ payload: string }>(
    `select payload from event where user_id = $1 and source = 'tracking'`,
    [userId],
  )
  expect(JSON.parse(row?.payload ?? '')).toMatchObject({
    userId,
    messageId: 'm-1',
    context: { page: { url: 'https://liff.example/menu#id_token=[token]' } },
  })
  expect(await readEverything(database)).not.toContain(token)
})

it('an event with a valid ID token does not bring back a person who was erased after it happened', async () => {
  const userId = randomUserId()
  await follow(userId)
  const token = await tokenOf(userId)
  const old = page(token, { timestamp: new Date().toISOString() })
  await service.eraseUser(tenant, userId)
  expect(await track([old])).toMatchObject(accepted(1))
  expect(await service.member(tenant, userId)).toBeUndefined()
  await track([page(token)])
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
})

it('an event with a valid ID token is not forwarded to an endpoint of the format line', async () => {
  await database.query(
    `insert into endpoint (channel_oa_id, url, format) values ($1, 'https://tool.example/', 'line')`,
    [tenant.accountId],
  )
  await track([page(await tokenOf(randomUserId()))])
  expect(await database.query('select from endpoint_delivery')).toEqual([])
  await follow(randomUserId())
  expect(await database.query('select from endpoint_delivery')).toHaveLength(1)
})

it('an event with a valid ID token keeps its proof when the database refuses it and an operator retries it', async () => {
  const [proven, claimed] = [randomUserId(), randomUserId()]
  await database.query(`alter table audience_member add constraint refused check (user_id <> '${proven}')`)
  expect(await track([page(await tokenOf(proven)), { type: 'page', userId: claimed }])).toMatchObject(
    accepted(2),
  )
  const [failed] = await database.query<{ id: bigint }>('select id from event where failure is not null')
  expect(await service.member(tenant, proven)).toBeUndefined()
  await database.query('alter table audience_member drop constraint refused')
  expect(await retryEvent(database, failed?.id as bigint)).toBe('applied')
  expect(await service.member(tenant, proven)).toMatchObject({ eventCount: 1 })
  expect(await service.member(tenant, claimed)).toBeUndefined()
})

it('an event without proof is stored without the tokens that LIFF appends to the address of its page', async () => {
  const userId = randomUserId()
  const address = (id: string) =>
    `#access_token=${id}.a+/=&context_token=${id}&feature_token=${id}&id_token=${id}&client_id=7`
  const encoded = encodeURIComponent(`https://liff.example/${address('SECRET2')}`)
  const page = {
    url: `https://liff.example/${address('SECRET1')}`,
    referrer: `https://x.example/?to=${encoded}`,
  }
  await track([{ type: 'page', userId, context: { page }, properties: { hash: address('SECRET3') } }])
  const [row] = await database.query<{ payload: string }>(
    'select payload from tracking_event where user_id = $1',
    [userId],
  )
  const replaced = address('[token]').replace('.a+/=', '')
  expect(JSON.parse(row?.payload ?? '')).toMatchObject({
    context: { page: { url: `https://liff.example/${replaced}` } },
    properties: { hash: replaced },
  })
  expect(row?.payload).not.toContain('SECRET')
})

const victim = randomUserId()
const [header = '', payload = '', signature = ''] = (await tokenOf(victim)).split('.')
const es256 = { alg: 'ES256', kid: KID, typ: 'JWT' }
const hs256 = `${encode({ alg: 'HS256', kid: KID })}.${payload}`
const hmacOfPublicKey = createHmac('sha256', JSON.stringify(key)).update(hs256).digest('base64url')
const otherIssuer = claims(victim, { iss: 'https://evil.example' })
const WRONG_TOKENS: Array<[string, unknown, RegExp]> = [
  [
    'of another person, with the signature of this one',
    `${header}.${encode(claims('U1'))}.${signature}`,
    /signature/,
  ],
  ['signed by another key under the name of one of LINE', forge(es256, claims(victim)), /signature/],
  [
    'signed by a key that LINE does not publish',
    forge({ ...es256, kid: 'k' }, claims(victim)),
    /not publish/,
  ],
  ['of another login channel', await tokenOf(victim, Date.now(), '2000000008'), /another login channel/],
  ['of another issuer', await platform.login.sign(otherIssuer), /not issued by LINE/],
  ['without an expiry', await platform.login.sign(claims(victim, { exp: undefined })), /exp/],
  ['with an empty person', await platform.login.sign(claims('')), /user id is empty/],
  ['followed by a line break', `${await tokenOf(victim)}\n`, /malformed/],
  ['that has expired', await tokenOf(victim, Date.now() - 2 * HOUR_MS), /expired/],
  ['without a signature', `${encode({ alg: 'none' })}.${payload}.`, /ES256/],
  ['with the public key as secret of HS256', `${hs256}.${hmacOfPublicKey}`, /ES256/],
  ['of a web login, signed with HS256', `${encode({ alg: 'HS256' })}.${payload}.${signature}`, /ES256/],
  ['with a key of its own', forge({ alg: 'ES256', jwk: key }, claims(victim)), /signature|not publish/],
  ['with critical extensions', forge({ ...es256, crit: ['b64'], b64: false }, claims(victim)), /signature/],
  ['that is too long', await tokenOf('U'.repeat(5_000)), /longer than 4096/],
  ['that contains another token', forge(es256, `${header}.${payload}.${signature}`), /malformed/],
  ['that is a number', 7, /not a text/],
]

describe('an event with a wrong ID token', async () => {
  const others = WRONG_TOKENS.map(() => randomUserId())
  const valid = others.map(async (other) => page(await tokenOf(other)))
  // Its keys are fetched for this request, so an unknown key is not newer.
  const fresh = await startApp(database, { config })
  const events = [...WRONG_TOKENS.map(([, token]) => page(token)), ...(await Promise.all(valid))]
  const answer = await track(events, {}, fresh)

  it.each(WRONG_TOKENS.map(([what, , reason], index) => [what, index, reason] as const))(
    '%s is rejected by index with the reason',
    (_what, index, reason) => {
      const rejection = answer.json.rejected.find((each: { index: number }) => each.index === index)
      expect(rejection?.message).toMatch(reason)
    },
  )

  it('does not affect the other events of the request', async () => {
    expect(answer).toMatchObject({ status: 200, json: { accepted: others.length } })
    for (const other of others) expect(await service.member(tenant, other)).toMatchObject({ eventCount: 1 })
    expect(await service.member(tenant, victim)).toBeUndefined()
  })

  it('is rejected for any token if the account has no login channel', async () => {
    const without = await addTenant(database, { loginChannelIds: ['  '] })
    const { json } = await service.track(without, [page(await tokenOf(victim))])
    expect(json.details[0].message).toMatch(/the account has no login channel/)
  })
})

const sendTo = async (to: Tenant, channelId: string) =>
  (await service.track(to, [page(await tokenOf(randomUserId(), Date.now(), channelId))])).status

it("the account's login channel may be one of several, as those of a MINI App", async () => {
  const several = await addTenant(database, { loginChannelIds: ['3', ' ', '4'] })
  const statuses = ['3', '4', '5'].map((channelId) => sendTo(several, channelId))
  expect(await Promise.all(statuses)).toEqual([200, 200, 400])
})

it("the account's login channel counts on the next request when another program changes it", async () => {
  const changing = await addTenant(database, { loginChannelIds: ['1'] })
  const send = (channelId: string) => sendTo(changing, channelId)
  const change = (channelId: string | null) =>
    database.query('update official_account set login_channel_ids = array[$2] where id = $1', [
      changing.accountId,
      channelId,
    ])
  expect([await send('1'), await send('2')]).toEqual([200, 400])
  await change('2')
  expect([await send('2'), await send('1')]).toEqual([200, 400])
  await change(null)
  expect(await send('2')).toBe(400)
})

const startAlone = async (intervalMs = 500) => {
  const alone = await startPlatform()
  const idTokens = new IdTokens(alone.url, Date.now, intervalMs)
  const to = await startApp(database, { idTokens })
  const send = async (userId: string, events: unknown[] = []) => {
    const token = await alone.login.idToken({ userId, loginChannelId: LOGIN_CHANNEL })
    return track([page(token), ...events], {}, to)
  }
  const fetches = () => alone.calls.filter((call) => call === CERTS).length
  return { alone, to, send, fetches }
}

it("LINE's keys are fetched once for many requests, and not before a token needs them", async () => {
  const { to, send, fetches } = await startAlone()
  expect(await track([{ type: 'page', userId: 'U1' }], {}, to)).toMatchObject(accepted(1))
  expect(fetches()).toBe(0)
  const answers = await Promise.all(Array.from({ length: 20 }, () => send(randomUserId())))
  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200))
  expect(fetches()).toBe(1)
})

it("LINE's keys are fetched again for a token that names a new key", async () => {
  const { alone, send, fetches } = await startAlone()
  await send(randomUserId())
  alone.login.rotateKeys()
  const userId = randomUserId()
  await expect.poll(() => send(userId)).toMatchObject(accepted(1))
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
  expect(fetches()).toBe(2)
})

const forged = () => page(forge({ alg: 'ES256', kid: randomUserId() }, claims('U1')))

it("LINE's keys are fetched once per interval for a flood of tokens that name unknown keys", async () => {
  const intervalMs = 500
  const { to, send, fetches } = await startAlone(intervalMs)
  const startedAtMs = performance.now()
  await send(randomUserId())
  const answers = await Promise.all(
    Array.from({ length: 40 }, () => track([forged(), { type: 'page', userId: 'U1' }], {}, to)),
  )
  expect([200, 503]).toEqual(expect.arrayContaining(answers.map(({ status }) => status)))
  const rejecting = () => track([forged(), forged(), { type: 'page', userId: 'U1' }], {}, to)
  await expect
    .poll(async () => (await rejecting()).json)
    .toMatchObject({ accepted: 1, rejected: [{ index: 0 }, { index: 1 }] })
  const intervals = (performance.now() - startedAtMs) / intervalMs
  expect(fetches()).toBeLessThanOrEqual(1 + Math.ceil(intervals))
})

it("LINE's keys answer 503 to an unknown key that may be newer than they are, and to nothing else", async () => {
  const { to, send, fetches } = await startAlone(3_600_000)
  await send(randomUserId())
  const refused = await track([forged()], {}, to)
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5'])
  expect(await send(randomUserId())).toMatchObject(accepted(1))
  expect(await track([{ type: 'page', userId: 'U1' }], {}, to)).toMatchObject(accepted(1))
  expect(fetches()).toBe(1)
})

it("LINE's keys are waited for by a limited number of tokens, of which one login channel has half", async () => {
  const { alone, to } = await startAlone(0)
  const verified = page(await alone.login.idToken({ userId: 'U1', loginChannelId: LOGIN_CHANNEL }))
  expect(await track([verified], {}, to)).toMatchObject(accepted(1))
  alone.misbehave(MISBEHAVIOURS.silent as Misbehaviour, /certs/)
  const token = forge({ alg: 'ES256', kid: 'unknown' }, claims('U1'))
  const body = JSON.stringify({
    writeKey: tenant.trackingKey,
    batch: Array.from({ length: 500 }, (_, index) => page(`${token}${String(index).padStart(4, '0')}`)),
  })
  const flood = new AbortController()
  const refused: Response[] = []
  const waiting = Array.from({ length: 10 }, () =>
    fetch(`${to.url}/api/tracking`, { method: 'POST', body, signal: flood.signal }).then((answer) =>
      refused.push(answer),
    ),
  )
  await expect.poll(() => refused.map(({ status }) => status)).toHaveLength(5)
  for (const { status, headers } of refused) expect([status, headers.get('retry-after')]).toEqual([503, '1'])
  const other = await addTenant(database, { loginChannelIds: ['2000000009'] })
  const loginChannelId = '2000000009'
  const event = page(await alone.login.idToken({ userId: 'U1', loginChannelId }))
  expect(await to.track(other, [event])).toMatchObject(accepted(1))
  // A token that was verified before does not wait.
  expect(await track([verified], {}, to)).toMatchObject(accepted(1))
  flood.abort()
  await Promise.allSettled(waiting)
})

it("LINE's keys answer 503 with Retry-After to a token that needs them while LINE is down, and to nothing else", async () => {
  const { alone, to, send } = await startAlone()
  alone.misbehave(MISBEHAVIOURS.error as Misbehaviour, /certs/)
  const userId = randomUserId()
  const refused = await send(userId, [{ type: 'page', userId: 'U1' }])
  expect(refused.status).toBe(503)
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
  expect(await track([{ type: 'page', userId: 'U1' }], {}, to)).toMatchObject(accepted(1))
  expect((await track([page('...'), page(await tokenOf(userId, 1))], {}, to)).status).toBe(400)
  alone.misbehave(null)
  await expect.poll(() => send(userId)).toMatchObject(accepted(1))
})

it("LINE's keys are used for a day while LINE is down", async () => {
  const { alone } = await startAlone()
  vi.useFakeTimers({ toFake: ['Date', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const idTokens = new IdTokens(alone.url, () => 0, 0)
  const verify = async () => {
    const token = await alone.login.sign(claims(randomUserId()))
    const [verdict] = (await idTokens.verify(new Set([token]), [LOGIN_CHANNEL])).values()
    return verdict?.isValid
  }
  expect(await verify()).toBe(true)
  alone.misbehave(MISBEHAVIOURS.null as Misbehaviour, /certs/)
  vi.advanceTimersByTime(23 * HOUR_MS)
  expect(await verify()).toBe(true)
  vi.advanceTimersByTime(2 * HOUR_MS)
  await expect(verify()).rejects.toMatchObject({ code: 'platform_unavailable' })
  alone.misbehave(null)
  expect(await verify()).toBe(true)
})

it('a budget of a tracking key that strangers have used up leaves people with a proven ID token a budget of their own', async () => {
  const limited = await startApp(database, {
    config,
    trackingBudgets: { address: NO_BUDGET, key: { ...NO_BUDGET, eventsPerMinute: 500 } },
  })
  const strangers = Array.from({ length: 500 }, () => page(null))
  expect(await track(strangers, {}, limited)).toMatchObject(accepted(500))
  expect((await track([page(null)], {}, limited)).status).toBe(429)
  const idToken = await tokenOf(randomUserId())
  expect(await track([page(idToken)], {}, limited)).toMatchObject(accepted(1))
  expect(await track([page(null)], { 'x-line-id-token': idToken }, limited)).toMatchObject(accepted(1))
  // A token that proves nothing opens nothing.
  expect((await track([page('forged'), page(null)], {}, limited)).status).toBe(429)
  const proven = Array.from({ length: 498 }, () => page(idToken))
  expect(await track(proven, {}, limited)).toMatchObject(accepted(498))
  expect((await track([page(idToken)], {}, limited)).status).toBe(429)
})
