/** The senders of events: LINE, the support chat and tracking. What was acknowledged goes into the books. */
import { randomUUID } from 'node:crypto'
import { signLine } from '../../dist/src/intake/line/signature.js'
import { signChat } from '../../dist/src/intake/mbox/signature.js'
import { lineBody, lineEvent, textMessage } from '../../dist/tools/simulator/events.js'
import { eventId } from './clock.mjs'
import { userIdOf } from './people.mjs'

const EVENTS_MAX = 3
/** Of a delivery at full rate. */
const EVENTS_OF_LARGE = 10
const TRACKING_EVENTS = 4
/** Messages of a person that may be unsent. */
const MESSAGES_KEPT = 3
/** Share of deliveries that LINE delivers again although they were accepted, and when. */
const REDELIVERED = 0.05
const REDELIVERY_MAX_MS = 20_000
/** Long after the deduplication of the events has ended, and so has the retention of the events. */
const LATE_REDELIVERY_MS = 25 * 60_000

const TEXTS = ['Good morning, is the shop open today?', 'สวัสดีค่ะ', '予約をお願いします', 'thanks 🙏']

export class Senders {
  #requests
  #people
  #deliveries
  #random
  /** Deliveries to be delivered again: {atMs, message}. */
  #later = []
  acknowledged = { line: 0, chat: 0, tracking: 0 }

  /** @param deliveries the book of what endpoints have to receive */
  constructor(requests, people, deliveries, random) {
    this.#requests = requests
    this.#people = people
    this.#deliveries = deliveries
    this.#random = random
  }

  /** One delivery of LINE. The first one of a person is a follow of this person alone. */
  async line(tenant) {
    const first = this.#people.pick(tenant)
    if (first === null) return
    if (!first.isGreeted) {
      first.isGreeted = true
      const message = await this.#deliver(tenant, [{ person: first, ...this.#follow(first) }])
      first.firstDelivery = message
      return
    }
    await this.#deliver(tenant, this.#acts(tenant, first, 1 + this.#random.below(EVENTS_MAX)))
  }

  /** A delivery at full rate, about people of whom some are new. */
  async large(tenant) {
    const first = this.#people.pick(tenant)
    if (first === null) return
    first.isGreeted = true
    await this.#deliver(tenant, this.#acts(tenant, first, EVENTS_OF_LARGE), 'large')
  }

  /** Sends again what is due. */
  redeliver(nowMs) {
    const due = this.#later.filter(({ atMs }) => atMs <= nowMs)
    if (due.length > 0) this.#later = this.#later.filter(({ atMs }) => atMs > nowMs)
    return due.map(({ message }) => this.#requests.until('line', message, [200]))
  }

  /** Events of erased people are delivered soon after the erasure, and when no key of theirs is stored any more. */
  redeliverErased(message) {
    if (message === null) return
    this.#later.push({ atMs: Date.now() + this.#random.below(REDELIVERY_MAX_MS), message })
    this.#later.push({ atMs: Date.now() + LATE_REDELIVERY_MS, message })
  }

  async chat(tenant) {
    const person = this.#people.pick(tenant)
    if (person === null) return
    const isMessage = this.#random.chance(0.7)
    // A later state of the same conversation, even if two callbacks are made in the same millisecond.
    const atMs = Math.max(Date.now(), person.conversation.atMs + 1)
    const status = isMessage ? 'open' : this.#random.pick(['open', 'pending', 'resolved'])
    person.conversation = { atMs, status }
    const body = JSON.stringify(chatWebhook(person.userId, isMessage, status, atMs))
    const message = {
      method: 'POST',
      path: `/api/mbox/callback/${tenant.oaHash}`,
      headers: {
        'content-type': 'application/json',
        'x-chatwoot-delivery': randomUUID(),
        ...signed(tenant, body),
      },
      body,
    }
    // A callback that is not the person's act makes a member that has done nothing.
    await this.#named([person], () => this.#requests.until('chat', message, [200]))
    if (isMessage) person.acts += 1
    person.isMember = true
    this.acknowledged.chat += 1
  }

  /** Some events are about strangers, who never become members. */
  async tracking(tenant) {
    const people = Array.from({ length: TRACKING_EVENTS - 1 }, () => this.#people.pick(tenant)).filter(
      Boolean,
    )
    const userIds = [...people.map(({ userId }) => userId), userIdOf(tenant)]
    const batch = userIds.map((userId) => {
      const common = { userId, messageId: randomUUID(), timestamp: new Date().toISOString() }
      return { type: 'track', event: 'Product Viewed', ...common, properties: { sku: 'A-1', price: 90 } }
    })
    const body = JSON.stringify({ writeKey: tenant.trackingKey, batch })
    const message = {
      method: 'POST',
      path: '/api/tracking',
      headers: { 'content-type': 'application/json' },
      body,
    }
    await this.#named(people, () => this.#requests.until('tracking', message, [200]))
    for (const person of people) person.tracked += 1
    this.acknowledged.tracking += batch.length
  }

  #acts(tenant, first, count) {
    const acts = []
    for (let act = 0; act < count; act += 1) {
      const person = act === 0 ? first : this.#people.pick(tenant, ({ isGreeted }) => isGreeted)
      if (person !== null) acts.push({ person, ...this.#act(person) })
    }
    return acts
  }

  async #deliver(tenant, acts, kind = 'line') {
    const events = acts.map(({ event }) => event)
    this.#deliveries.expect(tenant, acts)
    const message = lineMessage(tenant, events)
    const people = acts.map(({ person }) => person)
    await this.#named(people, () => this.#requests.until(kind, message, [200]))
    for (const { person, messageId, unsends } of acts) {
      person.isMember = true
      person.acts += 1
      if (messageId !== undefined) person.messageIds = [...person.messageIds, messageId].slice(-MESSAGES_KEPT)
      if (unsends !== undefined) this.#people.unsend(unsends)
    }
    this.acknowledged.line += events.length
    if (this.#random.chance(REDELIVERED)) {
      const again = events.map((event) => ({ ...event, deliveryContext: { isRedelivery: true } }))
      const atMs = Date.now() + this.#random.below(REDELIVERY_MAX_MS)
      this.#later.push({ atMs, message: lineMessage(tenant, again) })
    }
    return message
  }

  async #named(people, work) {
    for (const person of people) person.busy += 1
    try {
      await work()
    } finally {
      for (const person of people) person.busy -= 1
    }
  }

  #act(person) {
    const dice = this.#random.next()
    if (dice < 0.12) return this.#follow(person)
    if (dice < 0.16 && person.messageIds.length > 0) {
      const unsends = person.messageIds.shift()
      this.#deliveries.exempt(unsends)
      return { event: eventOf('unsend', person, { unsend: { messageId: unsends } }), unsends }
    }
    if (dice < 0.24) {
      return { event: eventOf('postback', person, { replyToken: randomUUID(), postback: { data: 'id=7' } }) }
    }
    const text = this.#random.pick(TEXTS)
    const event = textMessage(person.userId, text, { replyToken: randomUUID(), webhookEventId: eventId() })
    return { event, messageId: event.message.id }
  }

  /** A follow or an unfollow. The newest one by (time, id) is the state that the member must have. */
  #follow(person) {
    const { atMs, state } = person.relationship
    const timestamp = Math.max(Date.now(), atMs + 1)
    const follows = state !== 'following'
    const fields = follows ? { follow: { isUnblocked: state === 'blocked' }, replyToken: randomUUID() } : {}
    const event = eventOf(follows ? 'follow' : 'unfollow', person, { timestamp, ...fields })
    person.relationship = { atMs: timestamp, state: follows ? 'following' : 'blocked' }
    return { event }
  }
}

const eventOf = (type, { userId }, fields) =>
  lineEvent(type, userId, { webhookEventId: eventId(), ...fields })

function lineMessage(tenant, events) {
  const body = lineBody(tenant.botUserId, events)
  const signature = signLine(body, tenant.channelSecret)
  const headers = { 'content-type': 'application/json; charset=utf-8', 'x-line-signature': signature }
  return { method: 'POST', path: `/api/line/${tenant.id}`, headers, body }
}

function signed({ chatSecret }, body) {
  if (chatSecret === null) return {}
  const timestamp = String(Math.floor(Date.now() / 1000))
  return { 'x-chatwoot-timestamp': timestamp, 'x-chatwoot-signature': signChat(body, timestamp, chatSecret) }
}

function chatWebhook(userId, isMessage, status, atMs) {
  const conversation = {
    id: 17,
    channel: 'Channel::Line',
    contact_inbox: { source_id: userId },
    status,
    updated_at: new Date(atMs).toISOString(),
  }
  if (!isMessage) return { event: 'conversation_status_changed', ...conversation }
  const createdAt = new Date(atMs).toISOString()
  const content = { message_type: 'incoming', content: 'hello', created_at: createdAt }
  return { event: 'message_created', id: atMs, ...content, conversation }
}
