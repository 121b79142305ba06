/**
 * Webhook bodies as Chatwoot's sources build them: webhook_data of message.rb, conversation.rb, contact.rb and
 * contact_inbox.rb, and event_data_presenter.rb. MBOX is built on Chatwoot.
 */

export type Webhook = Record<string, unknown>

export const account = { id: 1, name: 'MBOX' }
export const inbox = { id: 3, name: 'Corner Coffee' }
/** Seconds since 1970 of 2026-09-10 08:00:00 UTC. */
export const AT = 1_789_027_200

/** contact.rb, push_event_data and webhook_data: the platform's user id is one of the additional attributes. */
export function contact(userId: string): Webhook {
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

/** event_data_presenter.rb, push_data: times are whole seconds, except updated_at, which has a fraction. */
export function conversation(userId: string, fields: Webhook = {}): Webhook {
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
    meta: { sender: contact(userId), assignee: null, assignee_type: null, team: null, hmac_verified: false },
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

/** message.rb, webhook_data: message_type is a word, created_at is ISO 8601, and there is no updated_at. */
export function message(userId: string, fields: Webhook = {}): Webhook {
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
