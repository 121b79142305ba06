/** DELETE /api/audience/:id: the answers, and the data that an erasure removes. */
import { expect, it } from 'vitest'
import type { Member } from '../../src/audience/member.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { message } from '../support/chatwoot.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, loadMembers, readEverything } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

/** Every event of these tests is older than the erasure. */
const PAST = { timestamp: Date.now() - 5000 }
const GROUP = { type: 'group', groupId: 'Cgroup' }

const memberOf = async (of: Tenant, userId: string) => (await service.member(of, userId)) as Member

const newFollower = (of = tenant) => service.addFollower(of, PAST)

const membersEvent = (type: string, field: string, userIds: unknown[]) =>
  lineEvent(type, null, {
    ...PAST,
    source: GROUP,
    [field]: { members: userIds.map((userId) => ({ type: 'user', userId })) },
  })

it('DELETE /api/audience/:id answers 204, then 404, and removes the member from the list', async () => {
  const { id, userId } = await newFollower()
  const answer = await service.erase(tenant, id)
  expect(answer.status).toBe(204)
  expect(answer.text).toBe('')
  expect(await service.member(tenant, userId)).toBeUndefined()
  const again = await service.erase(tenant, id)
  expect(again.json).toMatchObject({ statusCode: 404, message: expect.stringMatching(/^Step 2: /) })
})

it('DELETE /api/audience/:id erases nobody else when it is repeated, because an id that was loaded by hand is never used again', async () => {
  const { id } = await newFollower()
  // A flush takes more ids than it uses, so one loaded id could be passed by chance.
  const loaded = [1n, 2n, 3n, 4n].map((ahead) => String(BigInt(id) + ahead))
  await loadMembers(database, tenant, loaded.length, { id: `${id} + i` })
  for (const each of loaded) expect((await service.erase(tenant, each)).status).toBe(204)
  for (let i = 0; i < 4; i += 1) expect(loaded).not.toContain((await newFollower()).id)
  for (const each of loaded) expect((await service.erase(tenant, each)).status).toBe(404)
})

it.each(['9223372036854775807', '4611686018427387904', '-9223372036854775807'])(
  'DELETE /api/audience/:id leaves the ids of new members alone after the id %s',
  async (id) => {
    const owner = await addTenant(database)
    await newFollower(owner)
    await loadMembers(database, owner, 1, { id: `'${id}'::bigint` })
    expect((await service.erase(owner, id)).status).toBe(204)
    expect(BigInt((await newFollower(owner)).id)).toBeLessThan(2n ** 52n)
  },
)

it('DELETE /api/audience/:id answers 412 and erases nothing when If-Match names another version', async () => {
  const { id, userId } = await newFollower()
  expect((await service.erase(tenant, id, { 'if-match': '"2"' })).json).toMatchObject({
    statusCode: 412,
    message: expect.stringMatching(/^Step 2: /),
  })
  expect(await memberOf(tenant, userId)).toMatchObject({ id, userId })
  expect((await service.erase(tenant, '999999', { 'if-match': '"1"' })).status).toBe(404)
  expect((await service.erase(tenant, id, { 'if-match': 'W/"2"' })).status).toBe(412)
  expect((await service.erase(tenant, id, { 'if-match': 'W/"1"' })).status).toBe(204)
})

it('DELETE /api/audience/:id removes user id and content from the events of all sources, and keeps other people in them', async () => {
  const [userId, friend] = [randomUserId(), randomUserId()]
  await service.deliver(tenant, [
    textMessage(userId, 'my secret words', PAST),
    textMessage(userId, 'more secret words', { ...PAST, source: { ...GROUP, userId } }),
    membersEvent('memberJoined', 'joined', [userId, friend]),
    membersEvent('memberLeft', 'left', [userId]),
  ])
  const words = { content: 'secret words in the chat', created_at: PAST.timestamp / 1000 }
  await service.chat(tenant, { event: 'message_created', ...message(userId, words) })
  await service.track(tenant, [{ type: 'page', userId, properties: { page: 'secret words on a page' } }])
  expect(await readEverything(database)).toContain(userId)
  expect((await service.erase(tenant, (await memberOf(tenant, userId)).id)).status).toBe(204)
  const kept = await readEverything(database)
  expect(kept).not.toContain(userId)
  expect(kept).not.toContain('secret words')
  expect((await memberOf(tenant, friend)).eventCount).toBe(1)
})

it('DELETE /api/audience/:id removes user id and content from events that could not be applied', async () => {
  const { id, userId } = await newFollower()
  await service.deliver(tenant, [
    { ...textMessage(userId, 'unusable secret words'), timestamp: 'never' },
    membersEvent('memberJoined', 'joined', [userId, 7]),
  ])
  const words = { content: 'unusable secret words in the chat', updated_at: {} }
  await service.chat(tenant, { event: 'message_created', ...message(userId, words) })
  expect((await readEverything(database)).split(userId).length).toBeGreaterThan(4)
  await service.erase(tenant, id)
  const kept = await readEverything(database)
  expect(kept).not.toContain(userId)
  expect(kept).not.toContain('unusable secret words')
})

it('DELETE /api/audience/:id answers 500 with its step and changes nothing when the erasure fails', async () => {
  const { id, userId } = await newFollower()
  await load(database, 'alter table erased_person rename to erased_person_away')
  const answer = await service.erase(tenant, id)
  await load(database, 'alter table erased_person_away rename to erased_person')
  expect(answer.json).toMatchObject({ statusCode: 500, message: expect.stringMatching(/^Step 3: /) })
  expect(answer.text).not.toContain('erased_person')
  expect(await memberOf(tenant, userId)).toMatchObject({ id })
  expect((await service.erase(tenant, id)).status).toBe(204)
})
