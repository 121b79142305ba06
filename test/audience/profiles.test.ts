/** Profiles: names, pictures and languages that are requested from the platform in the background. */
import { afterAll, beforeEach, expect, it } from 'vitest'
import { ProfileFiller } from '../../src/audience/profiles.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { profilesBackedOff } from '../../src/observability/facts.ts'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { eventOf } from '../../tools/simulator/kinds.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from '../support/database.ts'
import { startPlatform } from '../support/platform.ts'
import { startApp } from '../support/service.ts'

const { database, connection } = await createTestDatabase()
/** the pool of another instance */
const second = openDatabase(connection)
const platform = await startPlatform()
const service = await startApp(database)
let tenant: Tenant
/** faults for which an account backs off */
let faults: string[]

const fillerOn = (on: PostgresDatabase) => new ProfileFiller(on, new LineApi(platform.url))

async function fillAll(filler = fillerOn(database)): Promise<void> {
  while ((await filler.pass()) > 0);
}

beforeEach(async () => {
  platform.misbehave(null)
  platform.calls.length = 0
  faults = []
  await database.query('update audience_member set profile_due_at = null')
  tenant = await addTenant(database, { channelAccessToken: platform.account.channelAccessToken })
})
const unsubscribe = profilesBackedOff.subscribe(({ fault }) => faults.push(fault))
afterAll(unsubscribe)

async function addFollowers(count: number): Promise<string[]> {
  const userIds = addPeople(platform, count)
  await service.deliver(
    tenant,
    userIds.map((userId) => lineEvent('follow', userId)),
  )
  return userIds
}

const profileCalls = () =>
  platform.calls.filter((call) => call.includes('/profile/') || call.includes('/member/'))

/** Makes the profiles due that are to be requested at some time. */
const makeDue = () =>
  database.query(
    'update audience_member set profile_due_at = now() where channel_oa_id = $1 and profile_due_at is not null',
    [tenant.accountId],
  )

const displayNames = async () => (await service.members(tenant)).map(({ displayName }) => displayName)

it('the profile of a new member is stored by the next pass, and not requested again', async () => {
  const [userId = ''] = await addFollowers(1)
  const before = await service.member(tenant, userId)
  await fillAll()
  const { displayName, pictureUrl, language } = platform.people.get(userId) ?? {}
  const after = await service.member(tenant, userId)
  expect(after).toMatchObject({ displayName, pictureUrl, language, version: 1 })
  expect((after?.updatedAt ?? '') > (before?.updatedAt ?? '')).toBe(true)
  await fillAll()
  await service.deliver(tenant, [textMessage(userId, 'seen again')])
  await fillAll()
  expect(profileCalls()).toHaveLength(1)
})

it.each(['group', 'room'] as const)(
  'the profile of a new member is requested from the %s in which the member was met',
  async (type) => {
    const [userId = ''] = addPeople(platform, 1)
    const person = platform.people.get(userId)
    if (person) person.isFriend = false
    const event = eventOf('message', userId, type)
    const { groupId, roomId } = event.source as { groupId?: string; roomId?: string }
    platform.groups.set(groupId ?? roomId ?? '', new Set([userId]))
    await service.deliver(tenant, [event])
    await fillAll()
    expect(await displayNames()).toEqual([person?.displayName])
  },
)

it('the profile of a new member is not requested when the account has no credentials', async () => {
  const poor = await addTenant(database)
  await service.deliver(poor, [lineEvent('follow', randomUserId())])
  await fillAll()
  expect(platform.calls).toEqual([])
})

it('the profile of a new member is requested once when two instances run at the same time', async () => {
  const userIds = await addFollowers(100)
  await Promise.all([fillAll(), fillAll(fillerOn(second))])
  expect(profileCalls()).toHaveLength(userIds.length)
  expect(new Set(profileCalls()).size).toBe(userIds.length)
  expect(await displayNames()).not.toContain(null)
})

it('the profile of a new member does not bring back a member who was erased while it was requested', async () => {
  const [userId = ''] = await addFollowers(1)
  let answerNow = () => {}
  const isRequested = new Promise<void>((resolve) => {
    platform.misbehave((_, response) => {
      resolve()
      answerNow = () => response.writeHead(200).end('{"displayName":"too late"}')
    })
  })
  const passing = fillAll()
  await isRequested
  await service.eraseUser(tenant, userId)
  answerNow()
  await passing
  expect(await service.members(tenant)).toEqual([])
})

it.each(['known', 'unknown'])(
  'the profile of a new member is requested again when the member follows during a request, and is %s to the platform',
  async (answer) => {
    const [userId = ''] = await addFollowers(1)
    if (answer === 'unknown') platform.people.delete(userId)
    const lineApi = new LineApi(platform.url)
    let calls = 0
    const profile: LineApi['profile'] = async (...parameters) => {
      const result = await lineApi.profile(...parameters)
      calls += 1
      if (calls === 1) await service.deliver(tenant, [lineEvent('follow', userId)])
      return result
    }
    await fillAll(new ProfileFiller(database, { profile } as LineApi))
    expect(calls).toBe(2)
  },
)

it('the profile of a member who has one is due after 30 days, and moves updatedAt only when it changed', async () => {
  const [userId = ''] = await addFollowers(1)
  await fillAll()
  const [due] = await database.query<{ days: number }>(
    `select extract(day from profile_due_at - now())::int as days from audience_member where user_id = $1`,
    [userId],
  )
  expect(due?.days).toBeGreaterThanOrEqual(29)
  const before = await service.member(tenant, userId)
  await makeDue()
  await fillAll()
  expect(await service.member(tenant, userId)).toEqual(before)
  Object.assign(platform.people.get(userId) ?? {}, { displayName: 'renamed' })
  await makeDue()
  await fillAll()
  const after = await service.member(tenant, userId)
  expect(after?.displayName).toBe('renamed')
  expect((after?.updatedAt ?? '') > (before?.updatedAt ?? '')).toBe(true)
})

it('the profile of a member who has one is requested after a new follow, however fresh it is', async () => {
  const [userId = ''] = await addFollowers(1)
  await fillAll()
  await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: Date.now() + 10 })])
  await fillAll()
  expect(profileCalls()).toHaveLength(2)
})

it('the profile of a person whom the platform does not know is requested again after 30 days, and after that only when the person was seen again', async () => {
  const userId = randomUserId()
  await service.deliver(tenant, [textMessage(userId, 'hello')])
  for (let month = 0; month < 4; month += 1) {
    await fillAll()
    await makeDue()
  }
  expect(profileCalls()).toHaveLength(2)
  await service.deliver(tenant, [lineEvent('follow', userId)])
  await fillAll()
  expect(profileCalls()).toHaveLength(3)
})

it('the profile of a person whom the platform does not know is not requested again after the person blocked the account', async () => {
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('unfollow', userId)])
  await fillAll()
  const rows = await database.query('select profile_due_at from audience_member where user_id = $1', [userId])
  expect(rows).toEqual([{ profile_due_at: null }])
  expect(profileCalls()).toHaveLength(1)
})

it.each([
  ['limits the rate', 429, { 'retry-after': '17' }, '{}', 12],
  ['refuses the token', 401, {}, '{}', 12],
  // Each call has three attempts.
  ['is hidden behind the page of a proxy', 404, {}, '<h1>Not Found</h1>', 36],
])(
  'the platform is not called for a while when it %s, and every profile is stored later',
  async (_, status, headers, body, callsMax) => {
    await addFollowers(40)
    platform.misbehave((_request, response) => response.writeHead(status, { ...headers }).end(body))
    const filler = fillerOn(database)
    await filler.pass()
    const callsOfFirstPass = platform.calls.length
    expect(callsOfFirstPass).toBeLessThan(callsMax)
    expect(faults).toHaveLength(1)
    await makeDue()
    expect(await filler.pass()).toBe(0)
    expect(platform.calls).toHaveLength(callsOfFirstPass)
    platform.misbehave(null)
    await fillAll()
    expect(await displayNames()).not.toContain(null)
  },
)
