/** Kinds of events and messages of LINE, which come late, repeatedly and in any order. intake/acts.test.ts sends one of each kind. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { eventOf, MESSAGES, messageOf } from '../../tools/simulator/kinds.ts'
import { addTenant } from '../support/database.ts'
import { setUpService, startApp } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

it('an event in standby mode counts like one in active mode', async () => {
  const userId = randomUserId()
  const { replyToken: _, ...event } = eventOf('message', userId) as Record<string, unknown>
  await service.deliver(tenant, [{ ...event, mode: 'standby' }])
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
})

it('an event of a module channel may name a person by a user id of 68 characters', async () => {
  const userId = `L${randomUserId()}-${randomUserId()}`
  expect(userId).toHaveLength(68)
  await service.deliver(tenant, [eventOf('follow', userId)])
  expect(await service.member(tenant, userId)).toMatchObject({ userId, relationship: 'following' })
})

it.each([...Object.keys(MESSAGES), 'hologram'])(
  'a message of the type %s is stored with its content',
  async (type) => {
    const userId = randomUserId()
    const message = messageOf(type)
    await service.deliver(tenant, [{ ...eventOf('message', userId), message }])
    const [stored] = await database.query<{ payload: string; message_id: string; failure: string | null }>(
      'select payload, message_id, failure from event where user_id = $1',
      [userId],
    )
    expect(stored).toMatchObject({ message_id: message.id, failure: null })
    expect(JSON.parse(stored?.payload ?? '').message).toEqual(message)
  },
)

it('a message makes a member of its author, not of the people whom it mentions', async () => {
  const account = await addTenant(database)
  const [author, mentioned] = [randomUserId(), randomUserId()]
  const mention = { mentionees: [{ type: 'user', index: 0, length: 4, userId: mentioned }] }
  await service.deliver(account, [
    { ...eventOf('message', author, 'group'), message: { ...messageOf('text'), mention } },
  ])
  expect(await service.members(account)).toHaveLength(1)
})

const AT = 1_700_000_000_000

it('updatedAt moves when an older follow fills followedAt, but not with mere activity', async () => {
  const userId = randomUserId()
  await service.deliver(tenant, [lineEvent('unfollow', userId, { timestamp: AT + 5 })])
  const before = await service.member(tenant, userId)
  await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: AT })])
  const after = await service.member(tenant, userId)
  expect(after).toMatchObject({ relationship: 'blocked', followedAt: new Date(AT).toISOString() })
  expect((after?.updatedAt as string) > (before?.updatedAt as string)).toBe(true)
  await service.deliver(tenant, [textMessage(userId, 'mere activity')])
  expect((await service.member(tenant, userId))?.updatedAt).toBe(after?.updatedAt)
})

const contentOf = (messageId: string) =>
  database.query<{ kind: string; payload: string | null }>(
    'select kind, payload from event where message_id = $1 order by id',
    [messageId],
  )
const erased = [{ kind: 'message', payload: null }]

it('a message that its sender unsends loses its stored content and that of its edits, and no other message does', async () => {
  const userId = randomUserId()
  const [unsent, kept] = [textMessage(userId, 'take me back'), textMessage(userId, 'keep me')]
  const edited = lineEvent('messageEdited', userId, {
    message: { ...unsent.message, text: 'take me back, too' },
  })
  await service.deliver(tenant, [unsent, kept, edited])
  await service.deliver(tenant, [lineEvent('unsend', userId, { unsend: { messageId: unsent.message.id } })])
  expect(await contentOf(unsent.message.id)).toEqual([...erased, { kind: 'messageEdited', payload: null }])
  expect((await contentOf(kept.message.id))[0]?.payload).toContain('keep me')
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 4 })
})

it.each(['after it', 'in the same delivery'])(
  'a message that its sender unsends is stored without content when its unsend comes first and it arrives %s',
  async (arrival) => {
    const userId = randomUserId()
    const late = textMessage(userId, 'too late')
    const unsend = lineEvent('unsend', userId, { unsend: { messageId: late.message.id } })
    const deliveries = arrival === 'after it' ? [[unsend], [late]] : [[unsend, late]]
    for (const delivery of deliveries) await service.deliver(tenant, delivery)
    expect(await contentOf(late.message.id)).toEqual(erased)
  },
)

it('a message that its sender unsends is stored without content when two instances receive message and unsend at the same moment', async () => {
  const second = await startApp(database)
  const userId = randomUserId()
  for (let round = 0; round < 20; round += 1) {
    const message = textMessage(userId, 'racing')
    const unsend = lineEvent('unsend', null, { unsend: { messageId: message.message.id } })
    const answers = await Promise.all([service.deliver(tenant, [message]), second.deliver(tenant, [unsend])])
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    expect(await contentOf(message.message.id)).toEqual(erased)
  }
})

const events = [
  lineEvent('botSuspended', null, { timestamp: AT }),
  lineEvent('botResumed', null, { timestamp: AT + 1 }),
  lineEvent('botSuspended', null, { timestamp: AT + 2 }),
]

it.each([
  [0, 1, 2],
  [2, 1, 0],
  [2, 0, 1],
])(
  'botSuspended and botResumed leave the account in its newest state in the order %i, %i, %i',
  async (...order) => {
    const account = await addTenant(database)
    for (const index of order) await service.deliver(account, [events[index]])
    const stored = await database.query('select suspended from official_account where id = $1', [
      account.accountId,
    ])
    expect(stored).toEqual([{ suspended: true }])
  },
)
