/** DELETE /api/audience/:id: an erasure lasts, whatever arrives before, during and after it. */
import { expect, it } from 'vitest'
import { finishErasures } from '../../src/accounts/erasure-lock.ts'
import type { Member } from '../../src/audience/member.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, readEverything } from '../support/load.ts'
import { type Service, setUpService, startApp } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

const ago = (ms: number) => ({ timestamp: Date.now() - ms })

const newFollower = (of: Tenant, at: Service = service) => at.addFollower(of, ago(60_000))

/** Erases a new follower while ten of the person's older messages arrive. */
async function eraseAmidDeliveries(of: Tenant, at: Service): Promise<Member> {
  const member = await newFollower(of, at)
  const messages = (text: string) =>
    Array.from({ length: 5 }, (_, i) => at.deliver(of, [textMessage(member.userId, text, ago(50_000 - i))]))
  const before = messages('secret in flight')
  const erased = at.erase(of, member.id)
  const after = messages('late secret in flight')
  for (const { status } of await Promise.all([...before, ...after])) expect(status).toBe(200)
  expect((await erased).status).toBe(204)
  return member
}

it('an erased person does not come back with older events, whether they are duplicates or late', async () => {
  const userId = randomUserId()
  const follow = lineEvent('follow', userId, ago(60_000))
  await service.deliver(tenant, [follow])
  await service.erase(tenant, (await service.member(tenant, userId))?.id ?? '')
  const late = textMessage(userId, 'late secret words', ago(30_000))
  const joined = lineEvent('memberJoined', null, {
    ...ago(20_000),
    source: { type: 'group', groupId: 'C1' },
    joined: { members: [{ type: 'user', userId }] },
  })
  const { json } = await service.deliver(tenant, [follow, late, joined])
  expect(json).toEqual({ accepted: 2, duplicates: 1 })
  const timestamp = new Date(Date.now() - 10_000).toISOString()
  await service.track(tenant, [{ type: 'page', userId, timestamp }])
  expect(await service.member(tenant, userId)).toBeUndefined()
  const kept = await readEverything(database)
  expect(kept).not.toContain(userId)
  expect(kept).not.toContain('late secret words')
})

it('an erased person does not come back with a tracking event from before the erasure whose sentAt equals its timestamp', async () => {
  const { id, userId } = await newFollower(tenant)
  await service.erase(tenant, id)
  const timestamp = new Date(Date.now() - 10_000).toISOString()
  await service.track(tenant, [
    { type: 'page', userId, timestamp, sentAt: timestamp, properties: { note: 'words in transit' } },
    { type: 'page', userId, sentAt: timestamp },
    { type: 'page', userId, timestamp: -1e15, sentAt: -1e15 },
  ])
  const kept = await readEverything(database)
  expect(kept).not.toContain(userId)
  expect(kept).not.toContain('words in transit')
})

it.each([
  ['ahead of', -3_600_000],
  ['behind', 3_600_000],
])(
  'an erased person is compared with events by the clock of the service when the database is %s it',
  async (_, offsetMs) => {
    const now = () => Date.now() + offsetMs
    const at = await startApp(database, { now })
    const { id, userId } = await newFollower(tenant, at)
    await at.erase(tenant, id)
    await at.deliver(tenant, [textMessage(userId, 'late', { timestamp: now() - 30_000 })])
    expect(await at.member(tenant, userId)).toBeUndefined()
    await at.deliver(tenant, [lineEvent('follow', userId, { timestamp: now() + 1000 })])
    expect(await at.member(tenant, userId)).toMatchObject({ relationship: 'following', eventCount: 1 })
  },
)

it('an erased person becomes a new member with a newer event', async () => {
  const { id, userId } = await newFollower(tenant)
  await service.erase(tenant, id)
  await service.deliver(tenant, [
    textMessage(userId, 'again', { timestamp: Date.now() + 5 }),
    lineEvent('follow', userId, ago(4000)),
  ])
  const back = await service.member(tenant, userId)
  expect(back?.id).not.toBe(id)
  expect(back).toMatchObject({ relationship: 'unknown', eventCount: 1, followedAt: null })
})

it('an erased person does not come back with older events that arrive during the erasure', async () => {
  for (let round = 0; round < 5; round += 1) {
    const { userId } = await eraseAmidDeliveries(tenant, service)
    expect(await service.member(tenant, userId)).toBeUndefined()
    expect(await readEverything(database)).not.toContain(userId)
  }
  expect(await readEverything(database)).not.toContain('secret in flight')
})

const conversation = (userId: string) => ({
  ...{ id: 7, channel: 'Channel::Line', contact_inbox: { source_id: userId } },
  updated_at: Date.now() / 1000 + 60,
})

const incoming = (userId: string) => ({
  ...{ event: 'message_created', message_type: 'incoming', content: 'hello again', id: 1 },
  created_at: new Date(Date.now() + 60_000).toISOString(),
  conversation: { ...conversation(userId), status: 'open' },
})

const byOthers: Array<[string, (userId: string) => Record<string, unknown>]> = [
  ...['conversation_status_changed', 'conversation_updated', 'conversation_created', 'somethingNew'].map(
    (event): [string, (userId: string) => Record<string, unknown>] => [
      event,
      (userId) => ({ ...conversation(userId), event, status: 'resolved' }),
    ],
  ),
  ['an outgoing message', (userId) => ({ ...incoming(userId), message_type: 'outgoing', id: 2 })],
  ['a message of a template', (userId) => ({ ...incoming(userId), message_type: 'template', id: 3 })],
  ['message_updated', (userId) => ({ ...incoming(userId), event: 'message_updated' })],
]

it.each(byOthers)(
  'an event of the support chat that is not the act of the person makes a member of a stranger, but not of an erased person: %s',
  async (_, webhookOf) => {
    const { id, userId } = await newFollower(tenant)
    const stranger = randomUserId()
    await service.erase(tenant, id)
    for (const each of [userId, stranger])
      expect((await service.chat(tenant, webhookOf(each))).status).toBe(200)
    expect(await service.member(tenant, userId)).toBeUndefined()
    expect(await service.member(tenant, stranger)).toMatchObject({ eventCount: 0 })
    expect(await readEverything(database)).not.toContain(userId)
  },
)

it('an event of the support chat that is not the act of the person updates the conversation of an erased person who came back, and does not count', async () => {
  const { id, userId } = await newFollower(tenant)
  await service.erase(tenant, id)
  await service.chat(tenant, incoming(userId))
  const state = { event: 'conversation_status_changed', status: 'resolved' }
  await service.chat(tenant, { ...conversation(userId), ...state, updated_at: Date.now() / 1000 + 90 })
  const back = await service.member(tenant, userId)
  expect(back).toMatchObject({ eventCount: 1, conversation: { id: '7', status: 'resolved' } })
})

/** More events than one statement of an erasure scrubs, which is 20,000. */
const MANY = 21_000

/** Adds events of the person, and events of other people that name the person. */
async function addEvents(of: Tenant, userId: string, own: number, others: number): Promise<void> {
  await load(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, other_user_ids, payload)
     select $1, 'line', 'message', gen_random_uuid(), now(), case when i <= $3 then $2 end,
            case when i > $3 then array[$2, 'Uother'] end, 'words of ' || $2 from generate_series(1, $3 + $4::int) i`,
    [of.accountId, userId, own, others],
  )
}

const eventsNaming = (userId: string) =>
  load<{ payload: string }>(
    database,
    `select payload from event
      where user_id = $1 or other_user_ids @> array[$1] or payload like '%' || $1 || '%' limit 2`,
    [userId],
  )

const pendingErasures = () => load(database, 'select from pending_erasure')

/** Fails every erasure after its first transaction, as if the service ended there. */
async function interruptErasures(): Promise<() => Promise<unknown>> {
  await load(
    database,
    `create function interrupt_erasure() returns trigger language plpgsql as $$
     begin
       if exists (select from pending_erasure) then raise 'interrupted'; end if;
       return null;
     end $$;
     create trigger interrupt_erasure before update on event for each statement execute function interrupt_erasure()`,
  )
  return () => load(database, 'drop function interrupt_erasure cascade')
}

it('an erasure of very many events is complete when it answers 204', async () => {
  const owner = await addTenant(database)
  const { id, userId } = await newFollower(owner)
  await addEvents(owner, userId, MANY, MANY)
  expect((await service.erase(owner, id)).status).toBe(204)
  expect(await eventsNaming(userId)).toEqual([])
  expect(await pendingErasures()).toEqual([])
  const others = await load(
    database,
    `select from event where channel_oa_id = $1 and other_user_ids = '{Uother}'`,
    [owner.accountId],
  )
  expect(others).toHaveLength(MANY)
})

it.each(["the client's retry", 'the service'])(
  'an erasure of very many events is finished by %s after an interruption, without the events of a person who came back',
  async (by) => {
    const owner = await addTenant(database)
    const { id, userId } = await newFollower(owner)
    await addEvents(owner, userId, MANY, 0)
    const goOn = await interruptErasures()
    expect((await service.erase(owner, id)).json.message).toMatch(/^Step 3: /)
    await goOn()
    expect(await pendingErasures()).toHaveLength(1)
    expect(await eventsNaming(userId)).not.toEqual([])
    await service.deliver(owner, [textMessage(userId, 'hello again', { timestamp: Date.now() + 1000 })])
    if (by === 'the service') await finishErasures(database)
    else expect((await service.erase(owner, id)).status).toBe(204)
    expect(await pendingErasures()).toEqual([])
    const events = await eventsNaming(userId)
    expect(events.map(({ payload }) => JSON.parse(payload).message.text)).toEqual(['hello again'])
    expect((await service.erase(owner, id)).status).toBe(404)
    expect(await service.member(owner, userId)).toMatchObject({ eventCount: 1 })
  },
)
