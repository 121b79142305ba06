/** The calls of Segment's HTTP API below /api/tracking, and events without a type. */
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { METRICS_PATHS } from '../../src/intake/tracking/calls.ts'
import { randomUserId } from '../../tools/simulator/events.ts'
import { NO_BUDGET, type Service, setUpService, startApp } from '../support/service.ts'

const { database, service, tenant } = await setUpService()
const { trackingKey: writeKey } = tenant
const origin = 'https://shop.example'

const post = (path: string, body: unknown, headers: Record<string, string> = {}, to: Service = service) =>
  to.call('POST', path, { headers, body: typeof body === 'string' ? body : JSON.stringify(body) })

/** What was stored of a user id, oldest first. */
const stored = async (userId: string) => {
  const rows = await database.query<{ kind: string; payload: string }>(
    'select kind, payload from tracking_event where user_id = $1 order by id',
    [userId],
  )
  return rows.map(({ kind, payload }) => ({ kind, payload: JSON.parse(payload) as Record<string, unknown> }))
}
const storedKinds = async (userId: string) => (await stored(userId)).map(({ kind }) => kind)

const PREFIXES = ['/api/tracking', '/api/tracking/v1', '/api/tracking/api/s', '/api/tracking/api/s/s2s']
const TYPES = {
  ...{ track: 'track', identify: 'identify', page: 'page', screen: 'screen', group: 'group', alias: 'alias' },
  ...{ t: 'track', i: 'identify', p: 'page', s: 'screen', g: 'group', a: 'alias' },
}
const BATCHES = [
  ...PREFIXES.flatMap((prefix) => ['batch', 'import', 'b'].map((call) => `${prefix}/${call}`)),
  '/api/tracking/beacon/v1/batch',
  '/api/tracking/v1/import/',
]
/** One of each kind. All paths have the same handler. */
const SOME_PATHS = [
  ...['/api/tracking', '/api/tracking/v1/track', '/api/tracking/v1/batch', '/api/tracking/beacon/v1/batch'],
]

/** The calls of Segment's documentation, which contain no type. */
const CALLS: Record<string, Record<string, unknown>> = {
  identify: { traits: { name: 'Mali', plan: 'gold' }, context: { ip: '192.0.2.7' } },
  track: { event: 'Coffee Ordered', properties: { name: 'Latte', value: 120 } },
  page: { properties: { path: '/menu', referrer: '' } },
  screen: { name: 'Menu', properties: { tab: 'hot' } },
  group: { groupId: 'g-1', traits: { name: 'Corner Coffee', employees: 4 } },
  alias: { previousId: 'a-1' },
}

it.each(PREFIXES)('a call below %s gives its event the type that the path names', async (prefix) => {
  const userId = randomUserId()
  for (const [call, type] of Object.entries(TYPES)) {
    const answer = await post(`${prefix}/${call}`, { writeKey, userId, ...CALLS[type] })
    expect(answer.json, call).toEqual({ success: true, accepted: 1, duplicates: 0, rejected: [] })
  }
  expect(await storedKinds(userId)).toEqual(Object.values(TYPES))
  expect((await stored(userId)).map(({ payload }) => payload.type)).toEqual(Object.values(TYPES))
})

it.each(BATCHES)('a call %s leaves every event its own type', async (path) => {
  const userId = randomUserId()
  const batch = Object.entries(CALLS).map(([type, fields]) => ({ type, userId, ...fields }))
  expect((await post(path, { writeKey, batch })).json).toMatchObject({ accepted: 6, rejected: [] })
  expect(await storedKinds(userId)).toEqual(Object.keys(CALLS))
})

it.each(PREFIXES)('a call of Jitsu below %s/event has the type of its event', async (prefix) => {
  const userId = randomUserId()
  for (const [type, fields] of Object.entries(CALLS))
    await post(`${prefix}/event`, { writeKey, userId, type, ...fields })
  expect(await storedKinds(userId)).toEqual(Object.keys(CALLS))
})

it('a call overrides the type in the body, as at Segment', async () => {
  const userId = randomUserId()
  await post('/api/tracking/v1/identify', { writeKey, userId, type: 'Mali', event: 'x' })
  expect(await storedKinds(userId)).toEqual(['identify'])
})

it('a call keeps the types of a batch that is sent to the path of one type', async () => {
  const userId = randomUserId()
  const batch = [
    { type: 'page', userId },
    { type: 'screen', userId },
  ]
  expect((await post('/api/tracking/v1/track', { writeKey, batch })).json).toMatchObject({ accepted: 2 })
  expect(await storedKinds(userId)).toEqual(['page', 'screen'])
})

it.each(
  `
    /api/tracking/ /api/tracking/v1 /api/tracking/v1/ /api/tracking/v1/tracks /api/tracking/v1/Track
    /api/tracking/v1/constructor /api/tracking/v1/track/1 /api/tracking/v2/track /api/tracking/api/s
    /api/tracking/api/s/m /api/tracking/beacon/v1/track /api/Tracking/v1/track
  `
    .trim()
    .split(/\s+/),
)('a call %s does not exist', async (path) => {
  const answer = await post(path, { writeKey, type: 'page', userId: 'U1' })
  expect(answer).toMatchObject({ status: 404, json: { message: 'No such route' } })
  expect((await service.call('OPTIONS', path, { headers: { origin } })).status).toBe(404)
  expect((await service.call('GET', '/api/tracking/v1/track')).status).toBe(404)
})

it('every kind of path answers the preflight request of any origin', async () => {
  const allowed = 'anonymousid,authorization,content-type,x-line-id-token,x-write-key'
  for (const path of [...SOME_PATHS, ...METRICS_PATHS]) {
    const preflight = await service.call('OPTIONS', path, {
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': allowed,
      },
    })
    expect(preflight.status, path).toBe(204)
    expect(Object.fromEntries(preflight.headers), path).toMatchObject({
      'access-control-allow-origin': origin,
      'access-control-allow-credentials': 'true',
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers': allowed,
    })
  }
})

it('every kind of path lets any origin read its answers, errors included', async () => {
  for (const path of [...SOME_PATHS, ...METRICS_PATHS]) {
    for (const [status, encoding] of [
      [200, 'identity'],
      [415, 'br'],
    ] as const) {
      const answer = await post(path, { writeKey, batch: [] }, { origin, 'content-encoding': encoding })
      expect(answer.status, path).toBe(status)
      expect(answer.headers.get('access-control-allow-origin'), path).toBe(origin)
    }
  }
})

describe('the limits', () => {
  const event = { ...CALLS.track, userId: 'U1' }
  const limited = (budget: Partial<typeof NO_BUDGET>) =>
    startApp(database, {
      trackingBudgets: { address: { ...NO_BUDGET, ...budget }, key: NO_BUDGET },
    })

  it('of events are one budget on all paths', async () => {
    const to = await limited({ eventsPerMinute: SOME_PATHS.length })
    for (const path of SOME_PATHS) {
      expect((await post(path, { writeKey, type: 'track', ...event }, {}, to)).status, path).toBe(200)
    }
    for (const path of SOME_PATHS) {
      const refused = await post(path, { writeKey, type: 'track', ...event }, { origin }, to)
      expect(refused.status, path).toBe(429)
      expect(Number(refused.headers.get('retry-after')), path).toBeGreaterThan(0)
      expect(refused.headers.get('access-control-allow-origin'), path).toBe(origin)
    }
  })

  it('of one event, one request and compression apply on each kind of path', async () => {
    const large = { writeKey, type: 'track', ...event, properties: { text: 'x'.repeat(33_000) } }
    for (const path of SOME_PATHS) {
      expect((await post(path, large)).status, path).toBe(400)
      const headers = { 'content-encoding': 'gzip' }
      const body = gzipSync(JSON.stringify({ writeKey, type: 'track', ...event }))
      expect((await service.call('POST', path, { headers, body })).json, path).toMatchObject({ accepted: 1 })
    }
  })
})

it.each(METRICS_PATHS)(
  'counters of the library itself are answered on %s without a key, and are not stored',
  async (path) => {
    const counter = { type: 'Counter', metric: 'analytics_js.event_delivered', value: 1, tags: {} }
    const answer = await post(path, { series: [counter] }, { 'content-type': 'text/plain' })
    expect(answer.status).toBe(200)
    expect(answer.json).toEqual({ success: true, accepted: 0, duplicates: 0, rejected: [] })
  },
)

it.each([
  ['track', { event: 'Ordered', groupId: 'g-1', traits: { plan: 'gold' }, name: 'Order' }],
  ['alias', { previousId: 'a-1' }],
  ['group', { groupId: 'g-1', traits: { employees: 4 } }],
  ['identify', { traits: { plan: 'gold' }, name: 'Mali' }],
  ['page', { name: 'Menu', properties: {} }],
  ['page', { category: 'Docs', type: '' }],
])('an event without a type is a %s event if it has the fields of one: %j', async (type, fields) => {
  const userId = randomUserId()
  expect((await post('/api/tracking', { writeKey, userId, ...fields })).json).toMatchObject({ accepted: 1 })
  expect(
    (await post('/api/tracking/v1/batch', { writeKey, batch: [{ userId, ...fields }] })).json,
  ).toMatchObject({ accepted: 1 })
  expect(await storedKinds(userId)).toEqual([type, type])
})

it.each([
  [123456789, '123456789'],
  [-7, '-7'],
])('takes the numeric userId %j, which libraries send, as text', async (userId, text) => {
  const answer = await post('/api/tracking', { writeKey, type: 'page', userId })
  expect(answer.json).toMatchObject({ accepted: 1, rejected: [] })
  expect(await storedKinds(text)).toEqual(['page'])
})

it.each([
  ['a single event', { userId: 'U1' }, [{ path: '0', message: 'type is missing' }]],
  ['an array', [7], [{ path: '0', message: 'the event is not an object' }]],
  [
    'a batch',
    { batch: [{ type: 'page' }, { type: 'page', userId: [7] }, { type: 'page', userId: 2 ** 53 }] },
    [
      { path: '0', message: 'userId or anonymousId is required' },
      { path: '1', message: 'the user id is not a string' },
      { path: '2', message: 'the user id is a number that is not exact: send it as text' },
    ],
  ],
])(
  'a request of which no event can be read is 400 with the reason of each: %s',
  async (_shape, body, details) => {
    // The second request meets a cached account.
    for (const path of ['/api/tracking', '/api/tracking/v1/batch']) {
      const answer = await post(`${path}?writeKey=${writeKey}`, body, { origin })
      expect(answer.status).toBe(400)
      expect(answer.json).toMatchObject({ message: 'None of the events could be read', details })
      expect(answer.headers.get('access-control-allow-origin')).toBe(origin)
    }
  },
)

describe('the tracking key', () => {
  const event = { type: 'page', anonymousId: 'a-1' }

  it.each(['', ':', ':secret'])('may be in X-Write-Key, followed by "%s"', async (suffix) => {
    const headers = { 'x-write-key': `${writeKey}${suffix}` }
    expect((await post('/api/tracking/api/s/page', event, headers)).json).toMatchObject({ accepted: 1 })
  })

  it.each(['***', `${writeKey}:***`])('may be masked in the body as Jitsu masks it: %s', async (masked) => {
    const headers = { 'x-write-key': `${writeKey}:secret` }
    const body = { ...event, writeKey: masked }
    expect((await post('/api/tracking/api/s/page', body, headers)).json).toMatchObject({ accepted: 1 })
    expect((await post('/api/tracking', { batch: [body] }, headers)).json).toMatchObject({ accepted: 1 })
  })

  it('is unknown if X-Write-Key names no account, or is empty', async () => {
    for (const key of ['unknown', ':secret', '']) {
      expect((await post('/api/tracking', event, { 'x-write-key': key })).status, key).toBe(400)
    }
  })
})
