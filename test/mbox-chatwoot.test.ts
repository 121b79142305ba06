/**
 * Webhooks as Chatwoot's own sources build them: webhook_listener.rb names the events; webhook_data of message.rb,
 * conversation.rb, contact.rb and contact_inbox.rb and event_data_presenter.rb make the bodies. MBOX is built on it.
 */
import { describe, expect, it } from 'vitest'
import { randomUserId } from '../tools/simulator/events.ts'
import { addTenant, type Tenant } from './support/database.ts'
import { setUpFile } from './support/service.ts'

const { database, service } = await setUpFile()

const account = { id: 1, name: 'MBOX' }
const inbox = { id: 3, name: 'Corner Coffee' }
/** 2026-09-10 08:00:00 UTC */
const AT = 1_789_027_200

/** contact.rb, push_event_data and webhook_data: the platform's id stands among the additional attributes. */
function contact(userId: string) {
  return {
    additional_attributes: { social_line_user_id: userId },
    custom_attributes: {},
    email: null,
    id: 5,
    identifier: null,
    name: 'Ann',
    phone_number: null,
    thumbnail: '',
    blocked: false,
    type: 'contact',
  }
}

/** event_data_presenter.rb, push_data: times are seconds, that of the update with a fraction. */
function conversation(userId: string, fields: Record<string, unknown> = {}) {
  return {
    additional_attributes: {},
    can_reply: true,
    channel: 'Channel::Line',
    contact_inbox: {
      id: 8,
      contact_id: 5,
      inbox_id: 3,
      source_id: userId,
      created_at: '2026-09-10T08:00:00.000Z',
      updated_at: '2026-09-10T08:00:00.000Z',
      hmac_verified: false,
      pubsub_token: 'not-ours',
    },
    id: 17,
    inbox_id: 3,
    messages: [],
    labels: ['vip'],
    meta: {
      sender: contact(userId),
      assignee: null,
      assignee_type: null,
      team: null,
      hmac_verified: false,
    },
    status: 'open',
    custom_attributes: {},
    snoozed_until: null,
    unread_count: 1,
    first_reply_created_at: null,
    priority: null,
    waiting_since: AT,
    agent_last_seen_at: 0,
    contact_last_seen_at: 0,
    last_activity_at: AT,
    timestamp: AT,
    created_at: AT,
    updated_at: AT + 0.123456,
    ...fields,
  }
}

/** message.rb, webhook_data: the type is a word, the time ISO 8601, and there is no time of update. */
function message(userId: string, fields: Record<string, unknown> = {}) {
  return {
    account,
    additional_attributes: {},
    content_attributes: {},
    content_type: 'text',
    content: 'is it open today?',
    conversation: conversation(userId),
    created_at: '2026-09-10T08:00:00.000Z',
    id: 4711,
    inbox,
    message_type: 'incoming',
    private: false,
    sender: { ...contact(userId), account },
    source_id: '325708',
    ...fields,
  }
}

const changed = [{ status: { previous_value: 'open', current_value: 'resolved' } }]
const WEBHOOKS: Record<string, (userId: string) => Record<string, unknown>> = {
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

describe('a webhook of Chatwoot', () => {
  it.each(Object.entries(WEBHOOKS))('%s is understood, and counts once', async (event, make) => {
    const tenant = await addTenant(database, { chatSecret: 'chat-secret' })
    const userId = randomUserId()
    const webhook = { ...make(userId), event }
    const headers = { 'x-chatwoot-delivery': crypto.randomUUID() }
    expect((await service.chat(tenant, webhook, headers)).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.chat(tenant, webhook, headers)).json).toEqual({ accepted: 0, duplicates: 1 })
    const [stored] = await database.query('select kind, failure from event where channel_oa_id = $1', [
      tenant.accountId,
    ])
    expect(stored).toEqual({ kind: event, failure: null })
    const member = await service.member(tenant, userId)
    expect(member).toMatchObject({ relationship: 'unknown', eventCount: 1 })
    expect(member?.conversation).toEqual(
      event.startsWith('contact_')
        ? null
        : {
            id: '17',
            status: event === 'conversation_status_changed' ? 'resolved' : 'open',
            updatedAt: '2026-09-10T08:00:00.123Z',
          },
    )
  })

  it('about a visitor of the web widget is kept, and makes nobody a member', async () => {
    const tenant = await addTenant(database)
    const webhook = {
      event: 'webwidget_triggered',
      id: 9,
      contact: { id: 6, name: 'visitor', type: 'contact', account },
      inbox,
      account,
      current_conversation: null,
      source_id: 'b6e9f2d0-8d0c-4b3e-9a55-5a1f2c3d4e5f',
      event_info: { initiated_at: { timestamp: 'Thu Sep 10 2026 15:00:00 GMT+0700' }, referer: '' },
    }
    expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 1, duplicates: 0 })
    expect(await service.members(tenant)).toEqual([])
  })

  it('of a version to come is kept', async () => {
    const tenant = await addTenant(database)
    const webhook = { ...conversation(randomUserId()), event: 'conversation_merged' }
    expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 1, duplicates: 0 })
  })

  it('whose contact is a group makes no member of the group', async () => {
    const tenant = await addTenant(database)
    const groupId = `C${'0'.repeat(32)}`
    await service.chat(tenant, { ...conversation(groupId, { group: true }), event: 'conversation_updated' })
    expect(await service.members(tenant)).toEqual([])
  })

  it('with ids as texts and times in other forms, as drifted versions send, means the same', async () => {
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

  it('of another inbox of the same chat account is nothing of an account that has its own', async () => {
    const tenants = [await addTenant(database), await addTenant(database)]
    const [one, other] = [randomUserId(), randomUserId()]
    for (const [index, tenant] of tenants.entries()) {
      await database.query('update official_account set chat_inbox_id = $2 where id = $1', [
        tenant.accountId,
        String(3 + index),
      ])
      // Chatwoot calls both for everything.
      const elsewhere = { contact_inbox: { source_id: other }, inbox_id: 4 }
      for (const webhook of [
        { ...message(one, {}), event: 'message_created' },
        { ...conversation(one), event: 'conversation_updated' },
        {
          ...message(other, { inbox: { id: '4' } }),
          conversation: conversation(other, elsewhere),
          event: 'message_created',
        },
        { ...conversation(other, elsewhere), event: 'conversation_updated' },
        { ...contact(one), event: 'contact_updated' },
      ]) {
        expect((await service.chat(tenant, webhook)).status).toBe(200)
      }
    }
    const seen = await Promise.all(tenants.map((tenant) => service.members(tenant)))
    expect(seen.map((members) => members.map(({ userId, eventCount }) => [userId, eventCount]))).toEqual([
      [[one, 2]],
      [[other, 2]],
    ])
    // It counts on the next delivery, whatever was remembered.
    const [first] = tenants as [Tenant, Tenant]
    const store = (inboxId: string | null) =>
      database.query('update official_account set chat_inbox_id = $2 where id = $1', [
        first.accountId,
        inboxId,
      ])
    const late = {
      ...conversation(other, { inbox_id: 4, updated_at: AT + 1 }),
      event: 'conversation_updated',
    }
    await store(' ')
    expect((await service.chat(first, { ...contact(one), event: 'contact_created' })).json.accepted).toBe(1)
    await store(' 3 ')
    expect((await service.chat(first, late)).json).toEqual({ accepted: 0, duplicates: 0 })
    expect(await service.members(first)).toHaveLength(1)
    await store(null)
    expect((await service.chat(first, late)).json).toEqual({ accepted: 1, duplicates: 0 })
  })

  it('without a time of update that was in flight at an erasure brings nobody back', async () => {
    const tenant = await addTenant(database)
    const userId = randomUserId()
    await service.chat(tenant, { ...conversation(userId), event: 'conversation_created' })
    const member = await service.member(tenant, userId)
    const timestamp = Math.floor(Date.now() / 1000)
    await service.call('DELETE', `/api/audience/${member?.id}`, { headers: tenant.headers })
    const late = conversation(userId, { timestamp, updated_at: undefined })
    await service.chat(tenant, { ...late, event: 'conversation_status_changed' })
    expect(await service.member(tenant, userId)).toBeUndefined()
  })

  it('without a time of update, as before 2025, ends in the state that was told last', async () => {
    const tenant = await addTenant(database)
    const userId = randomUserId()
    // At the beginning of a second, of which all of them tell.
    await new Promise((resolve) => setTimeout(resolve, 1000 - (Date.now() % 1000)))
    const now = Math.floor(Date.now() / 1000)
    const state = (status: string, activeAt: number) =>
      conversation(userId, { status, timestamp: activeAt, created_at: now - 600, updated_at: undefined })
    await service.chat(tenant, { ...state('pending', now - 600), event: 'conversation_created' })
    await service.chat(tenant, {
      ...message(userId, { created_at: new Date(now * 1000).toISOString() }),
      conversation: state('open', now),
      event: 'message_created',
    })
    await service.chat(tenant, { ...state('resolved', now), event: 'conversation_status_changed' })
    await service.chat(tenant, { ...state('snoozed', now - 300), event: 'conversation_updated' })
    expect(await service.member(tenant, userId)).toMatchObject({
      conversation: { status: 'resolved' },
      eventCount: 4,
    })
  })
})
