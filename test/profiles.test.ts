/** Names, pictures and languages: filled in behind the answers, shared by instances, never asked for in vain for ever. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { ProfileFiller } from '../src/audience/profiles.ts'
import type { PlatformFault } from '../src/line-api/call.ts'
import { LineApi } from '../src/line-api/client.ts'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { addPeople } from '../tools/simulator/deliveries.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { eventOf } from '../tools/simulator/kinds.ts'
import { type SimulatedPlatform, simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant, createTestDatabase, type Tenant } from './support/database.ts'
import { type Service, startApp } from './support/service.ts'

let database: PostgresDatabase
let second: PostgresDatabase
let platform: SimulatedPlatform
let service: Service
let tenant: Tenant
let rests: PlatformFault[]

const fillerOn = (on: PostgresDatabase) =>
  new ProfileFiller(on, new LineApi(platform.url), {
    asked: () => undefined,
    rests: (_, fault) => rests.push(fault),
  })

async function fillAll(filler = fillerOn(database)): Promise<void> {
  while ((await filler.pass()) > 0);
}

beforeAll(async () => {
  const created = await createTestDatabase()
  database = created.database
  second = new PostgresDatabase(created.connection, () => undefined)
  second.markReady()
  platform = await simulatePlatform()
  service = await startApp(database)
})
beforeEach(async () => {
  platform.misbehave(null)
  platform.calls.length = 0
  rests = []
  await database.query('update audience_member set profile_due_at = null')
  tenant = await addTenant(database, { channelAccessToken: platform.account.channelAccessToken })
})
afterAll(async () => {
  await service.app.close()
  await platform.close()
  await second.close()
  await database.close()
})

const followers = async (count: number): Promise<string[]> => {
  const userIds = addPeople(platform, count)
  await service.deliver(
    tenant,
    userIds.map((userId) => lineEvent('follow', userId)),
  )
  return userIds
}
const asked = () => platform.calls.filter((call) => call.includes('/profile/') || call.includes('/member/'))

describe('who follows while the platform is being asked', () => {
  it.each(['known', 'unknown'])('and is %s to it is asked for once more', async (answer) => {
    const [userId = ''] = await followers(1)
    if (answer === 'unknown') platform.people.delete(userId)
    const lineApi = new LineApi(platform.url)
    let asked = 0
    const profile: LineApi['profile'] = async (...parameters) => {
      asked += 1
      const result = await lineApi.profile(...parameters)
      if (asked === 1) await service.deliver(tenant, [lineEvent('follow', userId)])
      return result
    }
    const observer = { asked: () => undefined, rests: () => undefined }
    await fillAll(new ProfileFiller(database, { profile } as LineApi, observer))
    expect(asked).toBe(2)
  })
})

describe('a new member', () => {
  it('has no name at first, and the platform is not asked before the answer', async () => {
    const [userId = ''] = await followers(1)
    expect(platform.calls).toEqual([])
    expect(await service.member(tenant, userId)).toMatchObject({ displayName: null, language: null })
  })

  it('is given name, picture and language by the next pass, and is not asked for again', async () => {
    const [userId = ''] = await followers(1)
    const before = await service.member(tenant, userId)
    await fillAll()
    const { displayName, pictureUrl, language } = platform.people.get(userId) ?? {}
    const after = await service.member(tenant, userId)
    expect(after).toMatchObject({ displayName, pictureUrl, language, version: 1 })
    expect((after?.updatedAt ?? '') > (before?.updatedAt ?? '')).toBe(true)
    await fillAll()
    await service.deliver(tenant, [textMessage(userId, 'seen again')])
    await fillAll()
    expect(asked()).toHaveLength(1)
  })

  it('met in a group alone is asked for in the group', async () => {
    for (const type of ['group', 'room'] as const) {
      const [userId = ''] = addPeople(platform, 1)
      const person = platform.people.get(userId)
      if (person) person.isFriend = false
      const event = eventOf('message', userId, type)
      const { groupId, roomId } = event.source as { groupId?: string; roomId?: string }
      platform.groups.set(groupId ?? roomId ?? '', new Set([userId]))
      await service.deliver(tenant, [event])
      await fillAll()
      expect(await service.member(tenant, userId)).toMatchObject({ displayName: person?.displayName })
    }
  })

  it('of an account without credentials costs no call', async () => {
    const poor = await addTenant(database)
    await service.deliver(poor, [lineEvent('follow', randomUserId())])
    await fillAll()
    expect(platform.calls).toEqual([])
  })

  it('of many is asked for once, though two instances look at the same moment', async () => {
    const userIds = await followers(100)
    await Promise.all([fillAll(), fillAll(fillerOn(second))])
    expect(asked()).toHaveLength(userIds.length)
    expect(new Set(asked()).size).toBe(userIds.length)
    for (const { displayName } of await service.members(tenant)) expect(displayName).not.toBeNull()
  })

  it('who was erased while the platform was asked does not come back', async () => {
    const [userId = ''] = await followers(1)
    let answerNow = () => {}
    const isAsked = new Promise<void>((resolve) => {
      platform.misbehave((_, response) => {
        resolve()
        answerNow = () => response.writeHead(200).end('{"displayName":"too late"}')
      })
    })
    const passing = fillAll()
    await isAsked
    const member = await service.member(tenant, userId)
    await service.call('DELETE', `/api/audience/${member?.id}`, { headers: tenant.headers })
    answerNow()
    await passing
    expect(await service.members(tenant)).toEqual([])
  })
})

describe('a known member', () => {
  it('is asked for after 30 days, and updatedAt moves only with a change', async () => {
    const [userId = ''] = await followers(1)
    await fillAll()
    const [due] = await database.query<{ days: number }>(
      `select extract(day from profile_due_at - now())::int as days from audience_member where user_id = $1`,
      [userId],
    )
    expect(due?.days).toBeGreaterThanOrEqual(29)
    const before = await service.member(tenant, userId)
    const makeDue = () =>
      database.query(`update audience_member set profile_due_at = now() where user_id = $1`, [userId])
    await makeDue()
    await fillAll()
    expect(await service.member(tenant, userId)).toEqual(before)
    const person = platform.people.get(userId)
    if (person) person.displayName = 'renamed'
    await makeDue()
    await fillAll()
    const after = await service.member(tenant, userId)
    expect(after?.displayName).toBe('renamed')
    expect((after?.updatedAt ?? '') > (before?.updatedAt ?? '')).toBe(true)
  })

  it('is asked for at a new follow, however fresh the profile', async () => {
    const [userId = ''] = await followers(1)
    await fillAll()
    await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: Date.now() + 10 })])
    await fillAll()
    expect(asked()).toHaveLength(2)
  })
})

describe('a person whom the platform does not know, or who blocked the account', () => {
  it('is asked for once more after 30 days, and then only if they were seen since', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [textMessage(userId, 'hello')])
    const makeDue = () =>
      database.query(
        `update audience_member set profile_due_at = now() where user_id = $1 and profile_due_at is not null`,
        [userId],
      )
    for (let month = 0; month < 4; month += 1) {
      await fillAll()
      await makeDue()
    }
    expect(asked()).toHaveLength(2)
    await service.deliver(tenant, [lineEvent('follow', userId)])
    await fillAll()
    expect(asked()).toHaveLength(3)
  })

  it('is not asked for again once they blocked it', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('unfollow', userId)])
    await fillAll()
    const [row] = await database.query('select profile_due_at from audience_member where user_id = $1', [
      userId,
    ])
    expect(row).toEqual({ profile_due_at: null })
    expect(asked()).toHaveLength(1)
  })
})

describe('a platform that is away, limiting or refusing', () => {
  it('is left alone for a while, and nobody is lost', async () => {
    for (const name of ['limit', 'refuse'] as const) {
      await database.query('update audience_member set profile_due_at = null')
      const userIds = await followers(40)
      platform.misbehave((_, response) =>
        name === 'limit'
          ? response.writeHead(429, { 'retry-after': '17' }).end('{}')
          : response.writeHead(401).end('{}'),
      )
      rests = []
      platform.calls.length = 0
      const filler = fillerOn(database)
      await filler.pass()
      const callsOfFirstPass = platform.calls.length
      expect(callsOfFirstPass).toBeLessThan(12)
      expect(rests).toHaveLength(1)
      await database.query(
        `update audience_member set profile_due_at = now() where profile_due_at is not null and channel_oa_id = $1`,
        [tenant.accountId],
      )
      expect(await filler.pass()).toBe(0)
      expect(platform.calls).toHaveLength(callsOfFirstPass)
      platform.misbehave(null)
      await fillAll()
      for (const userId of userIds) {
        expect((await service.member(tenant, userId))?.displayName).not.toBeNull()
      }
    }
  })

  it('does not hold up intake, however long it is silent', async () => {
    await followers(16)
    platform.misbehave(() => undefined)
    const filler = fillerOn(database)
    const passing = filler.pass()
    const startedAt = Date.now()
    const member = (await service.members(tenant))[0]
    for (let i = 0; i < 20; i += 1) {
      expect((await service.deliver(tenant, [textMessage(member?.userId ?? '', 'hello')])).status).toBe(200)
    }
    expect(Date.now() - startedAt).toBeLessThan(2000)
    await filler.stop()
    await passing
  })
})
