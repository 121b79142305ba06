/** POST /api/line/:id, LINE's webhook: which events it stores, recognizes and applies. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage, ulid } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

const ACCEPTED = { accepted: 1, duplicates: 0 }
const DUPLICATE = { accepted: 0, duplicates: 1 }
const redelivered = { deliveryContext: { isRedelivery: true } }

it('an event takes effect once, however often it is delivered, alone or with others', async () => {
  const userId = randomUserId()
  const event = textMessage(userId, 'once')
  const other = textMessage(userId, 'other')
  expect((await service.deliver(tenant, [event])).json).toEqual(ACCEPTED)
  const again = { ...event, ...redelivered }
  expect((await service.deliver(tenant, [again, other, again, other])).json).toEqual({
    accepted: 1,
    duplicates: 3,
  })
  expect((await service.member(tenant, userId))?.eventCount).toBe(2)
})

it('an event without webhookEventId is recognized by its content', async () => {
  const { webhookEventId: _, ...old } = textMessage(randomUserId(), 'from before 2022')
  expect((await service.deliver(tenant, [old])).json).toEqual(ACCEPTED)
  expect((await service.deliver(tenant, [{ ...old, ...redelivered }])).json).toEqual(DUPLICATE)
})

it('an event in a group makes members of its sender and of those who joined or left, and counts once for each', async () => {
  const [sender, joined, left] = [randomUserId(), randomUserId(), randomUserId()]
  const group = { type: 'group', groupId: 'C1' }
  await service.deliver(tenant, [
    textMessage(sender, 'in a group', { source: { ...group, userId: sender } }),
    lineEvent('memberJoined', null, {
      source: group,
      joined: {
        members: [{ type: 'user', userId: joined }, { type: 'user', userId: joined }, { type: 'user' }],
      },
    }),
    lineEvent('memberLeft', null, { source: group, left: { members: [{ type: 'user', userId: left }] } }),
    lineEvent('join', null, { source: group }),
    lineEvent('botSuspended', null),
  ])
  for (const userId of [sender, joined, left]) {
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1, relationship: 'unknown' })
  }
})

it('an event from the test button of the old LINE console adds no member', async () => {
  const account = await addTenant(database)
  const answer = await service.deliver(account, [
    {
      replyToken: '0'.repeat(32),
      type: 'message',
      timestamp: 1_513_669_370_317,
      source: { type: 'user', userId: 'Udeadbeefdeadbeefdeadbeefdeadbeef' },
      message: { id: '100001', type: 'text' },
    },
  ])
  expect(answer.json).toEqual(ACCEPTED)
  expect(await service.members(account)).toEqual([])
})

/** Only the last three of the 14 can be applied, and two of those name the person. */
const mostlyInvalidEvents = (userId: string) => [
  null,
  7,
  'text',
  [],
  {},
  lineEvent('message', '\u0000'),
  lineEvent('message', 'U\ud800'),
  lineEvent('message', 'U'.repeat(5000)),
  lineEvent('message', userId, { timestamp: 1e300 }),
  lineEvent('message', userId, { timestamp: -1 }),
  { ...lineEvent('message', userId), timestamp: 'yesterday' },
  lineEvent('me\u0000ssage\ud800', userId, { webhookEventId: '\u0000' }),
  textMessage(userId, 'half \ud83e and \u0000'),
  { ...lineEvent('message', userId), source: 'x', webhookEventId: 'x'.repeat(5000) },
]

it('an invalid event is stored with the reason, and its neighbours take effect', async () => {
  const account = await addTenant(database)
  const userId = randomUserId()
  const answer = await service.deliver(account, mostlyInvalidEvents(userId))
  expect(answer.json).toEqual({ accepted: 14, duplicates: 0 })
  expect((await service.member(account, userId))?.eventCount).toBe(2)
  const failures = await database.query(
    'select failure from event where failure is not null and channel_oa_id = $1',
    [account.accountId],
  )
  expect(failures).toHaveLength(11)
})

it.each([
  ['', 'the user id is empty'],
  [7, 'the user id is not a string'],
])('an invalid event whose user id is %j has the reason that %s', async (userId, failure) => {
  const account = await addTenant(database)
  const source = { type: 'user', userId }
  const members = [{ type: 'user', userId }]
  await service.deliver(account, [
    lineEvent('message', null, { source }),
    lineEvent('memberJoined', null, { joined: { members } }),
  ])
  const stored = await database.query('select failure from event where channel_oa_id = $1', [
    account.accountId,
  ])
  expect(stored).toEqual([{ failure }, { failure }])
})

const nested = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`
const storedOf = ({ accountId }: Tenant) =>
  database.query<{ payload: string; failure: string | null }>(
    'select payload, failure from event where channel_oa_id = $1 order by id',
    [accountId],
  )

it('an event nested deeper than 512 levels is stored with a failure and without effect, and its neighbours take effect', async () => {
  const userId = randomUserId()
  const deep = nested(20_000)
  const neighbour = JSON.stringify(textMessage(userId, 'hello'))
  const id = ulid(Date.now())
  const body = `{"events":[{"type":"message","timestamp":1,"webhookEventId":"${id}","x":${deep}},${neighbour}]}`
  expect((await service.deliverRaw(tenant, body)).json).toEqual({ accepted: 2, duplicates: 0 })
  expect((await service.deliverRaw(tenant, body)).json).toEqual({ accepted: 0, duplicates: 2 })
  expect((await service.member(tenant, userId))?.eventCount).toBe(1)
})

it('an event nested deeper than 512 levels makes no member, also alone and without webhookEventId, while an event of 512 levels does', async () => {
  const account = await addTenant(database)
  const event = (levels: number, userId: string) =>
    `{"type":"follow","timestamp":5,"source":{"type":"user","userId":"${userId}"},"x":${nested(levels - 1)}}`
  const deliver = async (body: string) =>
    (await service.deliverRaw(account, `{"destination":"","events":[${body}]}`)).json
  expect(await deliver(event(512, 'Uflat'))).toEqual(ACCEPTED)
  expect(await deliver(event(513, 'Udeep'))).toEqual(ACCEPTED)
  expect(await deliver(event(513, 'Udeep'))).toEqual(DUPLICATE)
  expect((await service.members(account)).map(({ userId }) => userId)).toEqual(['Uflat'])
  const [flat, deep] = await storedOf(account)
  expect(flat).toEqual({ payload: event(512, 'Uflat'), failure: null })
  expect(deep).toEqual({
    payload: event(513, 'Udeep').replace('{"a":1}', 'null'),
    failure: 'the event is nested deeper than 512 levels',
  })
})
