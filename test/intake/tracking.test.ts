/** POST /api/tracking, Segment's HTTP shape. */
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { Metrics } from '../../src/observability/metrics.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant } from '../support/database.ts'
import { NO_BUDGET, setUpService, startApp } from '../support/service.ts'
import { trackedEvents } from '../support/tracked.ts'

const { database, service, tenant } = await setUpService()

const AT = 1_700_000_000_000
const page = (userId: string, fields: Record<string, unknown> = {}) => ({
  type: 'page',
  userId,
  properties: { path: '/' },
  ...fields,
})
const follow = (userId: string, timestamp = AT) =>
  service.deliver(tenant, [lineEvent('follow', userId, { timestamp })])
const indexesOf = (rejected: Array<{ index: number }>) => rejected.map(({ index }) => index)
const byBasicAuthentication = (key: string) => ({
  authorization: `Basic ${Buffer.from(`${key}:`).toString('base64')}`,
})
const post = (body: unknown, headers: Record<string, string> = {}, query = '') =>
  service.call('POST', `/api/tracking${query}`, {
    headers,
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })

const { trackingKey } = tenant
const ok = { success: true, accepted: 1, duplicates: 0, rejected: [] }

it('a request names the account by writeKey, in a batch or in the event', async () => {
  expect((await post({ writeKey: trackingKey, batch: [page('U1')] })).json).toEqual(ok)
  expect((await post({ ...page('U1'), writeKey: trackingKey })).json).toEqual(ok)
  expect((await post({ batch: [{ ...page('U1'), writeKey: trackingKey }] })).json).toEqual(ok)
})

it('a request may name the account by Basic authentication, also with an empty writeKey', async () => {
  const headers = byBasicAuthentication(trackingKey)
  expect((await post({ batch: [page('U1')] }, headers)).json).toEqual(ok)
  expect((await post({ writeKey: '', batch: [page('U1')] }, headers)).json).toEqual(ok)
})

it.each(['writeKey', 'trackingKey', 'tracking_key'])(
  'a request may name the account by %s in the query',
  async (name) => {
    expect((await post([page('U1')], {}, `?${name}=${trackingKey}`)).json).toEqual(ok)
  },
)

it.each([
  ['no key', page('U1')],
  ['an unknown key', { writeKey: 'unknown', batch: [page('U1')] }],
  ['a key that no account can have', { writeKey: '\u0000', batch: [] }],
  ['no event and no key', []],
  ['no object and no key', '[7]'],
])('a request with %s is rejected with 400', async (_what, body) => {
  expect((await post(body)).json).toMatchObject({ statusCode: 400, requestId: expect.any(String) })
})

it.each(['not JSON', '7', '{"batch":7}'])('a request whose body is %s is rejected with 400', async (body) => {
  expect((await post(body, {}, `?writeKey=${trackingKey}`)).status).toBe(400)
})

it('a request may have more events than it is read in turns, also without ids, and rejects by index', async () => {
  const to = await addTenant(database)
  const batch: unknown[] = Array.from({ length: 1_200 }, (_, no) => ({ event: `e${no}`, userId: 'U1' }))
  for (const index of [0, 499, 500, 1_150]) batch[index] = 0
  const { json } = await service.track(to, batch)
  expect(json).toMatchObject({ accepted: 1_196, duplicates: 0 })
  expect(indexesOf(json.rejected)).toEqual([0, 499, 500, 1_150])
  expect(await trackedEvents(database, to, 1_196)).toHaveLength(1_196)
})

it('a request is stored once, and charged once, if its account changes while it is stored', async () => {
  const to = await addTenant(database)
  const key = { ...NO_BUDGET, eventsPerMinute: 401 }
  const limited = await startApp(database, { trackingBudgets: { address: NO_BUDGET, key } })
  // The first of its flushes has 256 events.
  await database.query('create sequence flushes')
  await database.query(`create function change_account() returns trigger language plpgsql as $$ begin
    if nextval('flushes') = 1 then update official_account set credentials_version = credentials_version + 1
     where tracking_key = '${to.trackingKey}'; end if; return null; end $$`)
  await database.query(
    'create trigger change_account after insert on tracking_event for each statement execute function change_account()',
  )
  const batch = Array.from({ length: 400 }, () => page('U1', { messageId: undefined }))
  const { json } = await limited.track(to, batch)
  await database.query('drop trigger change_account on tracking_event')
  expect(json.accepted + json.duplicates).toBe(400)
  expect(json.duplicates).toBeGreaterThan(0)
  expect(await trackedEvents(database, to, 400)).toHaveLength(400)
  for (const status of [200, 429]) expect((await limited.track(to, [page('U1')])).status).toBe(status)
})

it('a request of 500,001 items is rejected with 400 and a short answer', async () => {
  const answer = await post(`[${'0,'.repeat(500_000)}0]`, {}, `?writeKey=${trackingKey}`)
  expect(answer.status).toBe(400)
  expect(answer.text.length).toBeLessThan(1000)
})

it('a request is for one account: events with the key of another are rejected', async () => {
  const other = await addTenant(database)
  const answer = await post([
    { ...page('U1'), writeKey: trackingKey },
    { ...page('U1'), writeKey: other.trackingKey },
  ])
  expect(answer.json).toMatchObject({ accepted: 1, rejected: [{ index: 1 }] })
})

it.each(['before', 'after'])(
  'an event that arrives %s the person becomes a member counts, but makes no member',
  async (arrival) => {
    const userId = randomUserId()
    if (arrival === 'after') await follow(userId)
    const events = [page(userId, { timestamp: '2023-01-01T00:00:00Z' }), page(userId)]
    expect((await service.track(tenant, events)).json).toMatchObject({ accepted: 2 })
    if (arrival === 'before') {
      expect(await service.member(tenant, userId)).toBeUndefined()
      await follow(userId)
    }
    const member = await service.member(tenant, userId)
    expect(member).toMatchObject({
      eventCount: 3,
      relationship: 'following',
      firstSeenAt: '2023-01-01T00:00:00.000Z',
    })
    expect(Date.parse(member?.lastSeenAt as string)).toBeGreaterThan(AT)
  },
)

it('an event counts once for each messageId', async () => {
  const userId = randomUserId()
  const event = page(userId, { messageId: `m-${userId}` })
  expect((await service.track(tenant, [event, event])).json).toMatchObject({ accepted: 1, duplicates: 1 })
  expect((await service.track(tenant, [event])).json).toMatchObject({ accepted: 0, duplicates: 1 })
})

const HOUR_MS = 3_600_000
const iso = (timeMs: number) => new Date(timeMs).toISOString()

/** When the member of a tracking event was last seen, as a service says whose clock stands still. */
async function lastSeenMs(nowMs: number, timestamp: string, batchFields: Record<string, unknown> = {}) {
  const clocked = await startApp(database, { now: () => nowMs })
  const userId = randomUserId()
  await follow(userId, 1)
  const batch = [page(userId, { timestamp })]
  const body = JSON.stringify({ writeKey: tenant.trackingKey, batch, ...batchFields })
  await clocked.call('POST', '/api/tracking', { body })
  return Date.parse((await service.member(tenant, userId))?.lastSeenAt as string)
}

it('the time of an event is corrected by sentAt when the clock of the sender is wrong', async () => {
  const nowMs = Date.now()
  const sentAtMs = nowMs + HOUR_MS
  expect(await lastSeenMs(nowMs, iso(sentAtMs - 10_000), { sentAt: iso(sentAtMs) })).toBe(nowMs - 10_000)
})

it('the time of an event is the time of receipt when it is in the future', async () => {
  const nowMs = Date.now()
  expect(await lastSeenMs(nowMs, iso(nowMs + HOUR_MS))).toBe(nowMs)
})

it.each([
  ['milliseconds', 1_700_000_001_000, '2023-11-14T22:13:21.000Z'],
  ['seconds', 1_700_000_000, '2023-11-14T22:13:20.000Z'],
])('the time of an event may be a number of %s', async (_unit, timestamp, firstSeenAt) => {
  const userId = randomUserId()
  await follow(userId, 1_800_000_000_000)
  await service.track(tenant, [page(userId, { timestamp })])
  expect(await service.member(tenant, userId)).toMatchObject({ firstSeenAt })
})

it('a rejected event is counted and reported by its index with the reason, and the valid ones are stored', async () => {
  const metrics = new Metrics(['tracking'])
  onTestFinished(() => metrics.close())
  const answer = await service.track(tenant, [
    page(randomUserId()),
    null,
    { userId: 'U1' },
    { type: 'track' },
    { type: 'track', anonymousId: 'a-1', event: 'Clicked' },
    page('U'.repeat(129)),
    page('\u0000'),
    page('U1', { properties: { text: 'x'.repeat(33_000) } }),
    { type: 'page', userId: [7] },
  ])
  expect(answer.status).toBe(200)
  expect(answer.json).toMatchObject({ success: true, accepted: 2, duplicates: 0 })
  expect(indexesOf(answer.json.rejected)).toEqual([1, 2, 3, 5, 6, 7, 8])
  for (const { message } of answer.json.rejected) expect(message).toMatch(/\w/)
  expect((await post([{ event: 'x' }], {}, `?writeKey=${tenant.trackingKey}`)).status).toBe(400)
  expect(await metrics.registry.metrics()).toContain(
    'oa_audience_events_total{source="tracking",outcome="rejected"} 8',
  )
})

it('a rejected event may be one that is nested too deeply', async () => {
  const deep = `{"type":"track","userId":"U1","properties":[${'['.repeat(20_000)}${']'.repeat(20_000)}${',1'.repeat(400_000)}]}`
  const answer = await post(
    `{"writeKey":"${tenant.trackingKey}","batch":[${deep},{"type":"page","userId":"U1"}]}`,
  )
  expect(answer.json).toMatchObject({
    accepted: 1,
    rejected: [{ index: 0, message: 'the event is nested deeper than 512 levels' }],
  })
})

describe('a compressed body', () => {
  const send = (body: Buffer, encoding: string) =>
    service.call('POST', '/api/tracking', { headers: { 'content-encoding': encoding }, body })
  const batch = (count: number) =>
    Buffer.from(
      JSON.stringify({
        writeKey: tenant.trackingKey,
        batch: Array.from({ length: count }, () => page('U1')),
      }),
    )

  it('is read if it is gzip', async () => {
    expect((await send(gzipSync(batch(200)), 'gzip')).json).toMatchObject({ accepted: 200, rejected: [] })
    expect((await send(gzipSync(batch(1)), 'GZIP')).json).toMatchObject({ accepted: 1 })
  })

  it('is 413 if its content is larger than a body may be, or grows more than text does', async () => {
    const large = Buffer.concat([batch(1), Buffer.alloc(1024 * 1024, ' ')])
    expect((await send(gzipSync(large), 'gzip')).status).toBe(413)
    const growing = Buffer.concat([batch(1), Buffer.alloc(200_000, ' ')])
    expect((await send(gzipSync(growing), 'gzip')).status).toBe(413)
  })

  it('is 400 if it is not valid gzip, and 415 in any other encoding', async () => {
    expect((await send(batch(1), 'gzip')).status).toBe(400)
    expect((await send(gzipSync(batch(1)).subarray(0, 50), 'gzip')).status).toBe(400)
    expect((await send(brotliCompressSync(batch(1)), 'br')).status).toBe(415)
    expect((await send(gzipSync(batch(1)), 'gzip, gzip')).status).toBe(415)
  })
})

const origin = 'https://shop.example'

it.each(['/api', '/api/health', '/api/audience'])('a browser may not read the answer of %s', async (path) => {
  const answer = await service.call('GET', path, { headers: { origin } })
  expect(answer.headers.get('access-control-allow-origin')).toBeNull()
})

it.each(['yesterday', '2015-2-02T00:30:08.276Z', '', {}, '1969-12-31T23:59:59Z'])(
  'a time that cannot be read is replaced by the time of receipt: %j',
  async (timestamp) => {
    const userId = randomUserId()
    await follow(userId)
    const before = Date.now()
    expect((await service.track(tenant, [page(userId, { timestamp })])).json).toMatchObject({ accepted: 1 })
    const lastSeenAt = Date.parse((await service.member(tenant, userId))?.lastSeenAt ?? '')
    expect(lastSeenAt).toBeGreaterThanOrEqual(before)
  },
)

describe('a budget of events and bytes per minute', () => {
  const events = (count: number) => Array.from({ length: count }, () => page(randomUserId()))
  const start = (address: Partial<typeof NO_BUDGET>, key: Partial<typeof NO_BUDGET> = {}) =>
    startApp(database, {
      trackingBudgets: { address: { ...NO_BUDGET, ...address }, key: { ...NO_BUDGET, ...key } },
      config: { trustProxy: ['loopback'] },
    })
  const track = (limited: typeof service, from: string, batch: unknown[], writeKey = tenant.trackingKey) =>
    limited.call('POST', '/api/tracking', {
      headers: { 'x-forwarded-for': from, origin },
      body: JSON.stringify({ writeKey, batch }),
    })

  it('limits the events of an address, across all tracking keys', async () => {
    const limited = await start({ eventsPerMinute: 500 })
    const other = await addTenant(database)
    expect((await track(limited, '192.0.2.1', events(300))).json.accepted).toBe(300)
    expect((await track(limited, '192.0.2.1', events(200), other.trackingKey)).json.accepted).toBe(200)
    const refused = await track(limited, '192.0.2.1', events(1))
    expect(refused).toMatchObject({ status: 429, json: { error: 'Too Many Requests' } })
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(refused.headers.get('access-control-allow-origin')).toBe(origin)
    expect((await track(limited, '192.0.2.2', events(200))).json.accepted).toBe(200)
  })

  it('accepts a request that is larger than what is left, and counts the rest in the next minutes', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    onTestFinished(() => void vi.useRealTimers())
    const limited = await start({ eventsPerMinute: 500 }, { eventsPerMinute: 700 })
    const waits = async (from: string) => {
      const { status, headers } = await track(limited, from, events(1))
      return [status, Math.ceil(Number(headers.get('retry-after')) / 60)]
    }
    for (const count of [499, 1_001])
      expect((await track(limited, '192.0.2.1', events(count))).json.accepted).toBe(count)
    expect(await waits('192.0.2.1')).toEqual([429, 3])
    expect(await waits('192.0.2.2')).toEqual([429, 2])
    vi.advanceTimersByTime(2 * 60_000)
    expect(await waits('192.0.2.1')).toEqual([429, 1])
    expect(await waits('192.0.2.2')).toEqual([200, 0])
  })

  it('limits the events of a tracking key, across all addresses', async () => {
    const limited = await start({}, { eventsPerMinute: 500 })
    const other = await addTenant(database)
    expect((await track(limited, '192.0.2.1', events(500))).status).toBe(200)
    expect((await track(limited, '192.0.2.2', events(1))).status).toBe(429)
    expect((await track(limited, '192.0.2.2', events(1), other.trackingKey)).status).toBe(200)
  })

  it('limits the bytes of an address, rejected and unreadable requests included', async () => {
    const limited = await start({ bytesPerMinute: 1024 * 1024 })
    const junk = 'x'.repeat(1024 * 1024 - 1_000)
    const post = (body: string) =>
      limited.call('POST', '/api/tracking', { headers: { 'x-forwarded-for': '192.0.2.1' }, body })
    for (const status of [400, 429]) expect((await post(junk)).status).toBe(status)
    expect((await track(limited, '192.0.2.1', events(1))).status).toBe(429)
    expect((await track(limited, '192.0.2.2', events(1))).status).toBe(200)
  })

  it('charges what cannot be read to the address and not to the tracking key', async () => {
    const limited = await start(
      { eventsPerMinute: 6_000 },
      { eventsPerMinute: 500, bytesPerMinute: 1024 * 1024 },
    )
    const large = page('U1', { properties: { text: 'x'.repeat(33_000) } })
    const attacks: Array<[status: number, batch: unknown[]]> = [
      [400, Array.from({ length: 5_000 }, () => 0)],
      [400, Array.from({ length: 30 }, () => large)],
      [400, events(499).map((event) => ({ ...event, userId: '' }))],
      [400, events(499).map((event) => ({ ...event, writeKey: 'another' }))],
      [400, events(499).map((event) => ({ ...event, context: { idToken: 'forged' } }))],
    ]
    for (const [no, [status, batch]] of attacks.entries()) {
      expect((await track(limited, `192.0.2.${no}`, batch)).status).toBe(status)
    }
    expect((await track(limited, '192.0.2.100', events(500))).json.accepted).toBe(500)
    expect((await track(limited, '192.0.2.101', events(1))).status).toBe(429)
    // The unreadable items were charged to their address.
    expect((await track(limited, '192.0.2.0', events(1_000), 'unknown')).status).toBe(400)
    expect((await track(limited, '192.0.2.0', events(1))).status).toBe(429)
  })

  it('does not let unknown tracking keys use up anything but the budget of their address', async () => {
    const limited = await start({ eventsPerMinute: 500 }, { eventsPerMinute: 500 })
    expect((await track(limited, '192.0.2.1', events(500), 'unknown')).status).toBe(400)
    expect((await track(limited, '192.0.2.1', events(1))).status).toBe(429)
    expect((await track(limited, '192.0.2.2', events(500))).status).toBe(200)
  })
})
