/** CONTRACT: POST /api/tracking, Segment's HTTP shape. */
import { describe, expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant } from './support/database.ts'
import { setUpFile } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

const page = (userId: string, rest: Record<string, unknown> = {}) => ({
  type: 'page',
  userId,
  properties: { path: '/' },
  ...rest,
})
const post = (body: unknown, headers: Record<string, string> = {}, query = '') =>
  service.call('POST', `/api/tracking${query}`, {
    headers,
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })

describe('the account', () => {
  it('is named by writeKey in the body, by Basic authentication or in the query', async () => {
    const { trackingKey } = tenant
    const ok = { success: true, accepted: 1, duplicates: 0, rejected: [] }
    expect((await post({ writeKey: trackingKey, batch: [page('U1')] })).json).toEqual(ok)
    expect((await post({ ...page('U1'), writeKey: trackingKey })).json).toEqual(ok)
    const basic = { authorization: `Basic ${Buffer.from(`${trackingKey}:`).toString('base64')}` }
    expect((await post({ batch: [page('U1')] }, basic)).json).toEqual(ok)
    for (const name of ['writeKey', 'trackingKey', 'tracking_key']) {
      expect((await post([page('U1')], {}, `?${name}=${trackingKey}`)).json, name).toEqual(ok)
    }
  })

  it('unknown or unnamed is answered 400', async () => {
    for (const body of [
      page('U1'),
      { writeKey: 'unknown', batch: [page('U1')] },
      { writeKey: '\u0000', batch: [] },
      [],
      '[7]',
    ]) {
      expect((await post(body)).json).toMatchObject({ statusCode: 400, requestId: expect.any(String) })
    }
    expect((await post('no JSON', {}, `?writeKey=${tenant.trackingKey}`)).status).toBe(400)
    expect((await post('7', {}, `?writeKey=${tenant.trackingKey}`)).status).toBe(400)
    expect((await post({ batch: 7 }, {}, `?writeKey=${tenant.trackingKey}`)).status).toBe(400)
  })
})

describe('an event', () => {
  it('never makes a member, and counts from the moment the person is one, in either order', async () => {
    const [before, after] = [randomUserId(), randomUserId()]
    await service.deliver(tenant, [lineEvent('follow', after, { timestamp: 1_700_000_000_000 })])
    for (const userId of [before, after]) {
      const answer = await service.track(tenant, [
        page(userId, { timestamp: '2023-01-01T00:00:00Z' }),
        page(userId),
      ])
      expect(answer.json).toMatchObject({ accepted: 2 })
    }
    expect(await service.member(tenant, before)).toBeUndefined()
    await service.deliver(tenant, [lineEvent('follow', before, { timestamp: 1_700_000_000_000 })])
    for (const userId of [before, after]) {
      const member = await service.member(tenant, userId)
      expect(member).toMatchObject({
        eventCount: 3,
        relationship: 'following',
        firstSeenAt: '2023-01-01T00:00:00.000Z',
      })
      expect(Date.parse(member?.lastSeenAt as string)).toBeGreaterThan(1_700_000_000_000)
    }
  })

  it('counts once for one messageId', async () => {
    const userId = randomUserId()
    const event = page(userId, { messageId: `m-${userId}` })
    expect((await service.track(tenant, [event, event])).json).toMatchObject({ accepted: 1, duplicates: 1 })
    expect((await service.track(tenant, [event])).json).toMatchObject({ accepted: 0, duplicates: 1 })
  })

  it('is corrected for the sender’s clock by sentAt, and never lies in the future', async () => {
    const [skewed, future] = [randomUserId(), randomUserId()]
    for (const userId of [skewed, future])
      await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: 1 })])
    const hour = 3_600_000
    const before = Date.now()
    await post({
      writeKey: tenant.trackingKey,
      sentAt: new Date(before + hour).toISOString(),
      batch: [page(skewed, { timestamp: new Date(before + hour - 10_000).toISOString() })],
    })
    await service.track(tenant, [page(future, { timestamp: new Date(before + hour).toISOString() })])
    const seen = async (userId: string) =>
      Date.parse((await service.member(tenant, userId))?.lastSeenAt as string)
    expect(Math.abs((await seen(skewed)) - (before - 10_000))).toBeLessThan(2000)
    expect(await seen(future)).toBeLessThanOrEqual(Date.now())
  })

  it('may tell its time as a number, of milliseconds or of seconds', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: 1_800_000_000_000 })])
    const firstSeen = async () => (await service.member(tenant, userId))?.firstSeenAt
    await service.track(tenant, [page(userId, { timestamp: 1_700_000_001_000 })])
    expect(await firstSeen()).toBe('2023-11-14T22:13:21.000Z')
    await service.track(tenant, [page(userId, { timestamp: 1_700_000_000 })])
    expect(await firstSeen()).toBe('2023-11-14T22:13:20.000Z')
  })

  it('that is nested too deeply is rejected, and its neighbours are kept', async () => {
    const deep = `{"type":"track","userId":"U1","properties":[${'['.repeat(20_000)}${']'.repeat(20_000)}${',1'.repeat(400_000)}]}`
    const answer = await post(
      `{"writeKey":"${tenant.trackingKey}","batch":[${deep},{"type":"page","userId":"U1"}]}`,
    )
    expect(answer.json).toMatchObject({
      accepted: 1,
      rejected: [{ index: 0, message: 'the event is nested too deeply' }],
    })
  })

  it('that is bad is rejected by its index, and the good ones are kept', async () => {
    const answer = await service.track(tenant, [
      page(randomUserId()),
      null,
      { userId: 'U1' },
      { type: 'track' },
      { type: 'track', anonymousId: 'a-1', event: 'Clicked' },
      page('U'.repeat(129)),
      page('\u0000'),
      page('U1', { timestamp: 'yesterday' }),
      page('U1', { properties: { text: 'x'.repeat(33_000) } }),
      { type: 'page', userId: 7 },
    ])
    expect(answer.status).toBe(200)
    expect(answer.json).toMatchObject({ success: true, accepted: 2, duplicates: 0 })
    expect(answer.json.rejected.map(({ index }: { index: number }) => index)).toEqual([
      1, 2, 3, 5, 6, 7, 8, 9,
    ])
    for (const { message } of answer.json.rejected) expect(message).toMatch(/\w/)
  })

  it('beyond the five hundredth of a request is rejected', async () => {
    const answer = await service.track(
      tenant,
      Array.from({ length: 502 }, () => page('U1')),
    )
    expect(answer.json).toMatchObject({ accepted: 500 })
    expect(answer.json.rejected.map(({ index }: { index: number }) => index)).toEqual([500, 501])
  })
})

describe('a request', () => {
  it('of too many items is refused in a small answer: 400', async () => {
    const answer = await post(`[${'0,'.repeat(500_000)}0]`, {}, `?writeKey=${tenant.trackingKey}`)
    expect(answer.status).toBe(400)
    expect(answer.text.length).toBeLessThan(1000)
  })

  it('is for one account: events that name another key are rejected', async () => {
    const other = await addTenant(database)
    const answer = await post([
      { ...page('U1'), writeKey: tenant.trackingKey },
      { ...page('U1'), writeKey: other.trackingKey },
    ])
    expect(answer.json).toMatchObject({ accepted: 1, rejected: [{ index: 1 }] })
  })

  it('may carry an empty key and name the account elsewhere', async () => {
    const basic = { authorization: `Basic ${Buffer.from(`${tenant.trackingKey}:`).toString('base64')}` }
    expect((await post({ writeKey: '', batch: [page('U1')] }, basic)).json).toMatchObject({ accepted: 1 })
    expect((await post({ batch: [{ ...page('U1'), writeKey: tenant.trackingKey }] })).json).toMatchObject({
      accepted: 1,
    })
  })
})

it("Segment's own library for Node works with host and path changed", async () => {
  const { Analytics } = await import('@segment/analytics-node')
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: 1_700_000_000_000 })])
  const analytics = new Analytics({ writeKey: tenant.trackingKey, host: service.url, path: '/api/tracking' })
  const errors: unknown[] = []
  analytics.on('error', (error) => errors.push(error))
  analytics.identify({ userId, traits: { plan: 'gold' } })
  analytics.track({ userId, event: 'Ordered', properties: { value: 120 } })
  analytics.page({ anonymousId: 'a-1', name: 'Menu' })
  await analytics.closeAndFlush()
  expect(errors).toEqual([])
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 3, relationship: 'following' })
  const kinds = await database.query<{ kind: string }>(
    `select kind from event where source = 'tracking' and (user_id = $1 or payload like '%"a-1","name":"Menu"%' or kind = 'identify') order by kind`,
    [userId],
  )
  expect(kinds.map(({ kind }) => kind)).toEqual(expect.arrayContaining(['identify', 'track']))
})

describe('browsers', () => {
  it('send beacons as text/plain', async () => {
    const answer = await post(
      { writeKey: tenant.trackingKey, ...page('U1') },
      { 'content-type': 'text/plain;charset=UTF-8' },
    )
    expect(answer.json).toMatchObject({ accepted: 1 })
  })

  it('may call this route from any origin, also with credentials, and no other route', async () => {
    const origin = 'https://shop.example'
    const preflight = await service.call('OPTIONS', '/api/tracking', {
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'content-type',
      },
    })
    expect(preflight.status).toBe(204)
    expect(preflight.headers.get('access-control-allow-origin')).toBe(origin)
    expect(preflight.headers.get('access-control-allow-credentials')).toBe('true')
    expect(preflight.headers.get('access-control-allow-headers')).toContain('content-type')
    const answer = await post({ writeKey: tenant.trackingKey, ...page('U1') }, { origin })
    expect(answer.headers.get('access-control-allow-origin')).toBe(origin)
    const refused = await post('no JSON', { origin })
    expect(refused.headers.get('access-control-allow-origin')).toBe(origin)
    const tooLarge = await post('x'.repeat(1024 * 1024 + 1), { origin })
    expect(tooLarge.status).toBe(413)
    expect(tooLarge.headers.get('access-control-allow-origin')).toBe(origin)
    for (const path of ['/api', '/api/health', '/api/audience']) {
      const other = await service.call('GET', path, { headers: { origin } })
      expect(other.headers.get('access-control-allow-origin')).toBeNull()
    }
  })
})
