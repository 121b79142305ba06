/** Where a member came from: docs/sources.md has the rule. */
import { expect, it } from 'vitest'
import { memberTimeline } from '../../src/audience/member-details.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { tryJourneys } from '../support/journeys.ts'
import { startPlatform } from '../support/platform.ts'
import { startApp } from '../support/service.ts'

const LOGIN_CHANNEL = '2000000007'
const HOUR_MS = 3_600_000
const FOLLOWED_MS = Date.UTC(2026, 0, 15)

const { database } = await createTestDatabase()
const platform = await startPlatform()
const service = await startApp(database, { config: { lineApiUrl: platform.url } })
const tenant = await addTenant(database, { loginChannelIds: [LOGIN_CHANNEL] })

const follow = (userId: string, atMs = FOLLOWED_MS) =>
  service.deliver(tenant, [lineEvent('follow', userId, { timestamp: atMs })])

/** A proven event of a page. */
async function visit(userId: string, atMs: number, context: object, isProven = true) {
  const idToken = await platform.login.idToken({
    userId,
    loginChannelId: LOGIN_CHANNEL,
    issuedAtMs: Date.now(),
  })
  const timestamp = new Date(atMs).toISOString()
  const event = { type: 'page', userId, timestamp, context: { ...context, ...(isProven && { idToken }) } }
  expect(await service.track(tenant, [event])).toMatchObject({ status: 200, json: { accepted: 1 } })
}

const came = async (userId: string) => (await service.member(tenant, userId))?.source

const SHOP = { campaign: { source: 'qr-shop', medium: 'poster', name: 'autumn' } }
const AD = { campaign: { source: 'ad' } }

it('a member came from the newest proven visit of the day before the follow, in either order of arrival', async () => {
  const [first, second] = [randomUserId(), randomUserId()]
  const visits = [
    () => visit(first, FOLLOWED_MS - 2 * HOUR_MS, AD),
    () => visit(first, FOLLOWED_MS - HOUR_MS, SHOP),
    () => follow(first),
  ]
  for (const send of visits) await send()
  await follow(second)
  await visit(second, FOLLOWED_MS - HOUR_MS, SHOP)
  await visit(second, FOLLOWED_MS - 2 * HOUR_MS, AD)
  const expected = { source: 'qr-shop', medium: 'poster', campaign: 'autumn', at: '2026-01-14T23:00:00.000Z' }
  expect([await came(first), await came(second)]).toEqual([expected, expected])
})

it('a member came from the first visit of the hour after the follow, if no visit was before it', async () => {
  const userId = randomUserId()
  await visit(userId, FOLLOWED_MS + 6_000, SHOP)
  await follow(userId)
  await visit(userId, FOLLOWED_MS + 7_000, AD)
  expect(await came(userId)).toMatchObject({ source: 'qr-shop' })
  await visit(userId, FOLLOWED_MS - 1_000, AD)
  expect(await came(userId)).toMatchObject({ source: 'ad' })
})

it('neither an unproven visit, nor one outside of the time, nor a later follow sets the source', async () => {
  const userId = randomUserId()
  await follow(userId)
  await visit(userId, FOLLOWED_MS - 1_000, SHOP, false)
  await visit(userId, FOLLOWED_MS - 24 * HOUR_MS - 1, SHOP)
  await visit(userId, FOLLOWED_MS + HOUR_MS + 1, SHOP)
  await follow(userId, FOLLOWED_MS + 2 * HOUR_MS)
  expect(await came(userId)).toBeNull()
})

it.each([
  ['campaign', { campaign: { name: 'autumn' } }, { source: null, campaign: 'autumn' }],
  [
    'URL of the page',
    { page: { url: 'https://shop.example/a?utm_source=mail&utm_medium=m#top' } },
    { source: 'mail', medium: 'm' },
  ],
  ['query of the page', { page: { search: '?utm_campaign=winter' } }, { source: null, campaign: 'winter' }],
  [
    'state of LIFF',
    { page: { url: 'https://shop.example/?liff.state=%2Fcups%3Futm_source%3Dqr' } },
    { source: 'qr' },
  ],
  [
    'URL, because the campaign says neither',
    { campaign: { medium: 'x' }, page: { url: 'https://a.example/?utm_source=u' } },
    { source: 'u' },
  ],
])('a visit says where the person came from by the %s', async (_name, context, expected) => {
  const userId = randomUserId()
  await visit(userId, FOLLOWED_MS, context)
  await follow(userId)
  expect(await came(userId)).toMatchObject(expected)
})

it.each([
  ['a longer value than is stored', { campaign: { source: 'x'.repeat(201) } }],
  ['a value that is not a text', { campaign: { source: 7, name: ['a'] } }],
  ['a state within a state', { page: { search: '?liff.state=%3Fliff.state%3D%253Futm_source%253Dqr' } }],
  ['a character that cannot be stored', { campaign: { source: 'a\0b' } }],
])('a visit with %s says nothing', async (_name, context) => {
  const userId = randomUserId()
  await visit(userId, FOLLOWED_MS, context)
  await follow(userId)
  expect(await came(userId)).toBeNull()
})

it('an erasure deletes the source and the visits it was made of', async () => {
  const userId = randomUserId()
  await visit(userId, Date.now() - 2_000, SHOP)
  await follow(userId, Date.now() - 1_000)
  const member = await service.member(tenant, userId)
  expect(member?.source).toMatchObject({ source: 'qr-shop' })
  expect(await service.erase(tenant, member?.id)).toMatchObject({ status: 204 })
  expect(await database.query('select from member_touch where user_id = $1', [userId])).toEqual([])
  await follow(userId, Date.now() + 1_000)
  expect(await came(userId)).toBeNull()
})

it('a source stays when its visit ends with the retention, and takes part if an earlier follow arrives', async () => {
  const userId = randomUserId()
  await visit(userId, FOLLOWED_MS - 2 * HOUR_MS, SHOP)
  await visit(userId, FOLLOWED_MS - HOUR_MS, AD)
  await follow(userId)
  await database.query('delete from member_touch where user_id = $1', [userId])
  await follow(userId, FOLLOWED_MS + 1)
  expect(await came(userId)).toMatchObject({ source: 'ad' })
  await follow(userId, FOLLOWED_MS - 90 * 60_000)
  expect(await came(userId)).toMatchObject({ source: 'ad' })
  await follow(userId, FOLLOWED_MS - 3 * HOUR_MS)
  expect(await came(userId)).toBeNull()
})

it('the follow of a member from before the upgrade counts as its earliest one', async () => {
  const userId = randomUserId()
  await follow(userId)
  await database.query('update audience_member set first_followed_at = null where user_id = $1', [userId])
  await follow(userId, FOLLOWED_MS + 30 * HOUR_MS)
  await visit(userId, FOLLOWED_MS + 29 * HOUR_MS, SHOP)
  expect(await came(userId)).toBeNull()
  await visit(userId, FOLLOWED_MS, AD)
  expect(await came(userId)).toMatchObject({ source: 'ad' })
})

it('a source counts as a change of the member, and the same touch again does not', async () => {
  const userId = randomUserId()
  await follow(userId)
  const before = await service.member(tenant, userId)
  await visit(userId, FOLLOWED_MS, AD)
  const after = await service.member(tenant, userId)
  expect(Date.parse(after?.updatedAt ?? '')).toBeGreaterThan(Date.parse(before?.updatedAt ?? ''))
  await visit(userId, FOLLOWED_MS + 1, SHOP)
  expect((await service.member(tenant, userId))?.updatedAt).toBe(after?.updatedAt)
})

it('a list, a segment and a condition find members by source and campaign', async () => {
  const [shop, ad] = [randomUserId(), randomUserId()]
  await visit(shop, FOLLOWED_MS, { campaign: { source: 'only-here', name: 'spring' } })
  await visit(ad, FOLLOWED_MS, { campaign: { source: 'only-there', name: 'spring' } })
  for (const userId of [shop, ad]) await follow(userId)
  const find = async (query: string) => {
    const { json } = await service.call('GET', `/api/audience?${query}`, { headers: tenant.headers })
    return json.data.map(({ userId }: { userId: string }) => userId)
  }
  const addSegment = (name: string, condition: object) =>
    database.query('insert into segment (channel_oa_id, name, condition) values ($1, $2, $3)', [
      tenant.accountId,
      name,
      JSON.stringify(condition),
    ])
  await addSegment('by source', { sourceAny: ['only-here'] })
  await addSegment('by campaign', { campaignAny: ['spring', 'x'], sourceAny: ['only-there', 'y'] })
  expect(await find('source=only-here')).toEqual([shop])
  expect(await find('segment=by%20source')).toEqual([shop])
  expect(await find('segment=by%20campaign')).toEqual([ad])
  expect(await find('segment=by%20source&source=only-there')).toEqual([])
})

it('the oldest 50 visits of a person and day are kept, however many arrive, and in any order', async () => {
  const userId = randomUserId()
  const times = Array.from({ length: 60 }, (_, second) => FOLLOWED_MS + second * 1_000)
  for (const atMs of times.toSorted(() => Math.random() - 0.5)) await visit(userId, atMs, AD)
  const [kept] = await database.query<{ count: number; last: number }>(
    `select count(*)::int as count, extract(epoch from max(occurred_at))::float8 * 1000 as last from member_touch where user_id = $1`,
    [userId],
  )
  expect(kept).toEqual({ count: 50, last: times[49] })
})

it('the timeline of a member names the source of each visit that has one', async () => {
  const userId = randomUserId()
  await visit(userId, FOLLOWED_MS - 1, SHOP)
  await visit(userId, FOLLOWED_MS - 2, {})
  await follow(userId)
  const { id = '' } = (await service.member(tenant, userId)) ?? {}
  const { entries } = await memberTimeline(database, tenant.accountId, { id, userId }, 10)
  expect(entries.map(({ effect }) => effect)).toEqual([
    { kind: 'following' },
    { kind: 'touch', source: 'qr-shop', campaign: 'autumn' },
    { kind: 'activity' },
  ])
})

it('the source of a member is a function of its visits and follows, in any order, repeated, from two instances', async () => {
  expect(await tryJourneys(database, tenant, 300)).toEqual([])
})
