/** POST /api/mbox/callback/:oaHash with the webhooks that Chatwoot's webhook_listener.rb sends. */
import { expect, it } from 'vitest'
import { randomUserId } from '../../tools/simulator/events.ts'
import { AT, account, contact, conversation, inbox, message, type Webhook } from '../support/chatwoot.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { setUpService, startApp } from '../support/service.ts'

const { database, service } = await setUpService()

const ACCEPTED = { accepted: 1, duplicates: 0 }
const IGNORED = { accepted: 0, duplicates: 0 }

const changed = [{ status: { previous_value: 'open', current_value: 'resolved' } }]
const WEBHOOKS: Record<string, (userId: string) => Webhook> = {
  conversation_created: (userId) => conversation(userId),
  conversation_status_changed: (userId) => ({
    ...conversation(userId, { status: 'resolved' }),
    changed_attributes: changed,
  }),
  conversation_updated: (userId) => ({ ...conversation(userId), changed_attributes: changed }),
  message_created: (userId) => message(userId),
  message_updated: (userId) => message(userId, { content: 'are you open today?' }),
  contact_created: (userId) => ({ account, avatar: '', ...contact(userId) }),
  contact_updated: (userId) => ({ account, avatar: '', ...contact(userId), changed_attributes: changed }),
}

/** The conversation of the member that the webhook above makes. */
function conversationAfter(event: string) {
  if (event.startsWith('contact_')) return null
  const status = event === 'conversation_status_changed' ? 'resolved' : 'open'
  return { id: '17', status, updatedAt: '2026-09-10T08:00:00.123Z' }
}

it.each(Object.entries(WEBHOOKS))(
  'a webhook of Chatwoot %s is stored once and makes a member',
  async (event, make) => {
    const tenant = await addTenant(database, { chatSecret: 'chat-secret' })
    const userId = randomUserId()
    const webhook = { ...make(userId), event }
    const headers = { 'x-chatwoot-delivery': crypto.randomUUID() }
    expect((await service.chat(tenant, webhook, headers)).json).toEqual(ACCEPTED)
    expect((await service.chat(tenant, webhook, headers)).json).toEqual({ accepted: 0, duplicates: 1 })
    const stored = await database.query('select kind, failure from event where channel_oa_id = $1', [
      tenant.accountId,
    ])
    expect(stored).toEqual([{ kind: event, failure: null }])
    const member = await service.member(tenant, userId)
    expect(member).toMatchObject({ userId, relationship: 'unknown' })
    expect(member?.conversation).toEqual(conversationAfter(event))
  },
)

it.each<[string, Webhook, number]>([
  [
    'about a visitor of the web widget',
    {
      event: 'webwidget_triggered',
      id: 9,
      contact: { id: 6, name: 'visitor', type: 'contact', account },
      inbox,
      account,
      current_conversation: null,
      source_id: 'b6e9f2d0-8d0c-4b3e-9a55-5a1f2c3d4e5f',
      event_info: { initiated_at: { timestamp: 'Thu Sep 10 2026 15:00:00 GMT+0700' }, referer: '' },
    },
    0,
  ],
  [
    'whose contact is a group',
    { ...conversation(`C${'0'.repeat(32)}`, { group: true }), event: 'conversation_updated' },
    0,
  ],
  [
    'with an event name that only a later version has',
    { ...conversation(randomUserId()), event: 'conversation_merged' },
    1,
  ],
])('a webhook of Chatwoot %s is stored', async (_, webhook, members) => {
  const tenant = await addTenant(database)
  expect((await service.chat(tenant, webhook)).json).toEqual(ACCEPTED)
  expect(await service.members(tenant)).toHaveLength(members)
})

it('a webhook of Chatwoot may write ids as text and times in other formats, as forks of Chatwoot do', async () => {
  const tenant = await addTenant(database)
  const userId = randomUserId()
  await service.chat(tenant, {
    ...message(userId, { id: '4711', created_at: '2026-09-10 08:00:00 UTC' }),
    conversation: conversation(userId, { id: '17', updated_at: String(AT + 0.5) }),
    event: 'message_created',
  })
  expect(await service.member(tenant, userId)).toMatchObject({
    lastSeenAt: '2026-09-10T08:00:00.000Z',
    conversation: { id: '17', status: 'open', updatedAt: '2026-09-10T08:00:00.500Z' },
  })
})

it('a webhook of Chatwoot without updated_at does not bring back a person who was erased while it was in flight', async () => {
  const tenant = await addTenant(database)
  const userId = randomUserId()
  await service.chat(tenant, { ...conversation(userId), event: 'conversation_created' })
  const timestamp = Math.floor(Date.now() / 1000)
  await service.eraseUser(tenant, userId)
  const late = conversation(userId, { timestamp, updated_at: undefined })
  await service.chat(tenant, { ...late, event: 'conversation_status_changed' })
  expect(await service.member(tenant, userId)).toBeUndefined()
})

// Chatwoot calls the webhook of an account for every inbox.
const storeInbox = (tenant: Tenant, inboxId: string | null) =>
  database.query('update official_account set chat_inbox_id = $2 where id = $1', [tenant.accountId, inboxId])
const send = async (tenant: Tenant, webhook: Webhook, event: string) => {
  const { status, json } = await service.chat(tenant, { ...webhook, event })
  expect(status).toBe(200)
  return json
}

it.each([3, 4] as const)(
  'an account whose chat inbox is set to %i ignores webhooks of other inboxes and of none',
  async (inboxId) => {
    const tenant = await addTenant(database)
    await storeInbox(tenant, String(inboxId))
    const users = { 3: randomUserId(), 4: randomUserId() }
    const inInbox4 = conversation(users[4], { contact_inbox: { source_id: users[4] }, inbox_id: 4 })
    const messageInInbox4 = message(users[4], { inbox: { id: '4' }, conversation: inInbox4 })
    await send(tenant, message(users[3]), 'message_created')
    await send(tenant, conversation(users[3]), 'conversation_updated')
    await send(tenant, messageInInbox4, 'message_created')
    await send(tenant, inInbox4, 'conversation_updated')
    await send(tenant, contact(users[3]), 'contact_updated')
    const stored = await database.query(
      'select user_id, kind from event where channel_oa_id = $1 order by id',
      [tenant.accountId],
    )
    const kinds = ['message_created', 'conversation_updated']
    expect(stored).toEqual(kinds.map((kind) => ({ user_id: users[inboxId], kind })))
    const members = await service.members(tenant)
    expect(members.map(({ userId, eventCount }) => [userId, eventCount])).toEqual([[users[inboxId], 1]])
  },
)

it('an account whose chat inbox is set applies a changed inbox to the next webhook, and treats a blank one as unset', async () => {
  const tenant = await addTenant(database)
  const webhook = conversation(randomUserId(), { inbox_id: 4 })
  await storeInbox(tenant, ' ')
  expect(await send(tenant, contact(randomUserId()), 'contact_created')).toEqual(ACCEPTED)
  await storeInbox(tenant, ' 3 ')
  expect(await send(tenant, webhook, 'conversation_updated')).toEqual(IGNORED)
  expect(await service.members(tenant)).toHaveLength(1)
  await storeInbox(tenant, null)
  expect(await send(tenant, webhook, 'conversation_updated')).toEqual(ACCEPTED)
})

it('a conversation without updated_at, as before 2025, is the last to arrive among updates of one second', async () => {
  const second = Math.floor(Date.now() / 1000)
  let nowMs = second * 1000
  const clocked = await startApp(database, { now: () => nowMs })
  const tenant = await addTenant(database)
  const userId = randomUserId()
  const state = (status: string, timestamp: number) =>
    conversation(userId, { status, timestamp, created_at: second - 600, updated_at: undefined })
  const created_at = new Date(second * 1000).toISOString()
  for (const webhook of [
    { ...state('pending', second - 600), event: 'conversation_created' },
    { ...message(userId, { created_at }), conversation: state('open', second), event: 'message_created' },
    { ...state('resolved', second), event: 'conversation_status_changed' },
    { ...state('snoozed', second - 300), event: 'conversation_updated' },
  ]) {
    nowMs += 200
    await clocked.chat(tenant, webhook)
  }
  expect(await service.member(tenant, userId)).toMatchObject({
    conversation: { status: 'resolved' },
    eventCount: 1,
  })
})

it('updatedAt moves with id and status of the conversation, and not with each message of it', async () => {
  const userId = randomUserId()
  const tenant = await addTenant(database)
  const seen: Array<[moved: boolean, shownAtMs: number]> = []
  let updatedAt: string | undefined
  for (const [no, state] of ['open', 'open', 'resolved', 'resolved', 'open'].entries()) {
    const about = conversation(userId, { status: state, updated_at: AT + no })
    const sent = no % 2 === 0 ? about : message(userId, { id: no, conversation: about })
    await service.chat(tenant, { event: no % 2 === 0 ? 'conversation_updated' : 'message_created', ...sent })
    const member = await service.member(tenant, userId)
    seen.push([member?.updatedAt !== updatedAt, Date.parse(member?.conversation?.updatedAt ?? '')])
    updatedAt = member?.updatedAt
  }
  expect(seen.map(([moved]) => moved)).toEqual([true, false, true, false, true])
  expect(seen.map(([, at]) => at / 1000 - AT)).toEqual([0, 1, 2, 3, 4])
})
