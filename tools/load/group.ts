/**
 * A few people of an account, about whom one loop sends requests: deliveries of LINE, the support chat and tracking, updates and
 * erasures. Requests about one person overlap, but never two of the same kind. So the book knows what must be stored.
 */
import { randomInt, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Secret } from '../../src/config/secret.ts'
import { signChat } from '../../src/intake/mbox/mbox-source.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent, textMessage, ulid } from '../simulator/events.ts'
import type { Book, Person } from './book.ts'
import type { RetryingClient } from './client.ts'

const EVENTS_MAX = 3
/** Share of deliveries after which LINE sends the delivery before them again. */
const REPEATED_SHARE = 0.1
/** Messages of a person that may be unsent. */
const MESSAGES_KEPT = 3
/** Shares of the rounds that have a request of the kind beside the delivery. */
const SHARES = { chat: 0.4, tracking: 0.27, update: 0.13, erasure: 0.017 }
const FIND_RETRY_MS = 50
const TAGS = ['g0', 'g1', 'g2', 'g3', 'g4']
/** Where all proven visitors come from. */
export const SOURCE = 'shop'

interface Act {
  person: Person
  event: ReturnType<typeof lineEvent>
  messageId?: string
  unsends?: string
}

interface Delivery {
  path: string
  init: RequestInit
}

interface GroupOptions {
  /** the id of a new event of LINE */
  eventId?: () => string
  /** receives the deliveries about erased people alone */
  onErased?: (delivery: Delivery) => void
  onAcknowledged?: (acts: Act[]) => void
  /** requests about its people do not overlap, so none waits for a row that another has locked, and gets a 503 */
  isSequential?: boolean
  /** how long an acknowledged member may be missing, where an instance may still read a former primary */
  findLimitMs?: number
}

const chance = (share: number) => Math.random() < share

export class Group {
  readonly #client: RetryingClient
  readonly #book: Book
  readonly #people: Person[]
  readonly #options: GroupOptions
  #previous: Delivery | null = null

  constructor(client: RetryingClient, book: Book, size: number, options: GroupOptions = {}) {
    this.#client = client
    this.#book = book
    this.#people = Array.from({ length: size }, () => book.addPerson())
    this.#options = options
  }

  /** A delivery, beside it some requests of other kinds, and sometimes an erasure after them. */
  async round(): Promise<void> {
    const requests = [
      () => this.deliver(),
      ...(chance(SHARES.chat) ? [() => this.#chat()] : []),
      ...(chance(SHARES.tracking) ? [() => this.#track()] : []),
      ...(chance(SHARES.update) ? [() => this.#update()] : []),
    ]
    if (this.#options.isSequential) for (const request of requests) await request()
    else await Promise.all(requests.map((request) => request()))
    if (chance(SHARES.erasure)) await this.#erase()
  }

  async deliver(count = 1 + randomInt(EVENTS_MAX), kind = 'line'): Promise<void> {
    const delivery = await this.#send(
      kind,
      Array.from({ length: count }, () => this.#act(this.#pick())),
    )
    if (this.#previous !== null && chance(REPEATED_SHARE)) await this.redeliver(this.#previous)
    this.#previous = delivery
  }

  async redeliver({ path, init }: Delivery): Promise<void> {
    this.#client.repeated += 1
    await this.#client.until('again', path, init, [200])
  }

  async #send(kind: string, acts: Act[]): Promise<Delivery> {
    const { account, acknowledged } = this.#book
    for (const { event, person, messageId } of acts) {
      this.#book.owe(event.webhookEventId, event.type, person.userId, messageId)
    }
    const body = lineBody(
      account.botUserId,
      acts.map(({ event }) => event),
    )
    const headers = { 'x-line-signature': signLine(body, new Secret(account.channelSecret)) }
    const delivery = { path: `/api/line/${account.id}`, init: { method: 'POST', headers, body } }
    await this.#client.until(kind, delivery.path, delivery.init, [200])
    for (const { person, messageId } of acts) {
      person.isMember = true
      person.events += 1
      if (messageId !== undefined) person.messageIds = [...person.messageIds, messageId].slice(-MESSAGES_KEPT)
    }
    acknowledged.line += acts.length
    this.#options.onAcknowledged?.(acts)
    return delivery
  }

  async #chat(): Promise<void> {
    const { account, acknowledged } = this.#book
    const person = this.#pick()
    const isMessage = chance(0.7)
    // Later than the last one, even if two callbacks are made in the same millisecond.
    const atMs = Math.max(Date.now(), person.conversation.atMs + 1)
    const status = isMessage ? 'open' : (['open', 'pending', 'resolved'][randomInt(3)] as string)
    person.conversation = { atMs, status }
    const body = JSON.stringify(chatCallback(person.userId, isMessage, status, atMs))
    const timestamp = String(Math.floor(Date.now() / 1000))
    const signed = account.chatSecret && {
      'x-chatwoot-timestamp': timestamp,
      'x-chatwoot-signature': signChat(body, timestamp, new Secret(account.chatSecret)),
    }
    const headers = {
      'content-type': 'application/json',
      'x-chatwoot-delivery': randomUUID(),
      ...(signed || {}),
    }
    const path = `/api/mbox/callback/${account.oaHash}`
    await this.#client.until('chat', path, { method: 'POST', headers, body }, [200])
    // A change of status is not an act of the person. It makes a member without events.
    if (isMessage) person.events += 1
    person.isMember = true
    acknowledged.chat += 1
  }

  /** One event is proven, if the account has a login channel. Another one is about a stranger, who never becomes a member. */
  async #track(): Promise<void> {
    const { account, acknowledged } = this.#book
    const people = Array.from({ length: 3 }, () => this.#pick())
    const [visitor] = people as [Person]
    const idToken = await account.idTokenOf?.(visitor.userId)
    const batch = [...people.map(({ userId }) => userId), this.#book.newUserId()].map((userId) => ({
      type: 'track',
      event: 'Product Viewed',
      userId,
      messageId: randomUUID(),
      timestamp: new Date().toISOString(),
      properties: { sku: 'A-1', price: 90 },
    }))
    if (idToken !== undefined)
      Object.assign(batch[0] as object, { context: { idToken, campaign: { source: SOURCE } } })
    const body = JSON.stringify({ writeKey: account.trackingKey, batch })
    await this.#client.until('tracking', '/api/tracking', { method: 'POST', body }, [200])
    for (const person of people) person.events += 1
    visitor.isMember ||= idToken !== undefined
    acknowledged.tracking += batch.length
  }

  async #update(): Promise<void> {
    const { account, acknowledged } = this.#book
    const person = this.#pick()
    if (!person.isMember) return
    const count = person.updates + 1
    const attributes = {
      externalId: `c-${person.userId}`,
      tags: [TAGS[count % TAGS.length]],
      attributes: { count },
    }
    const headers = { ...account.headers, 'content-type': 'application/json' }
    const init = { method: 'PUT', headers, body: JSON.stringify(attributes) }
    await this.#client.until('update', `/api/audience/${await this.#idOf(person)}`, init, [200])
    person.updates = count
    acknowledged.updates += 1
  }

  /** A 404 is right after an attempt whose response was lost. The comparison finds a member who is still there. */
  async #erase(): Promise<void> {
    const { account, owedErasures } = this.#book
    const slot = randomInt(this.#people.length)
    const person = this.#people[slot] as Person
    const delivery = await this.#send('line', [this.#act(person)])
    const id = await this.#idOf(person)
    person.isLeaving = true
    if (account.membersSecret !== undefined) owedErasures.add(id)
    const init = { method: 'DELETE', headers: account.headers }
    await this.#client.until('erase', `/api/audience/${id}`, init, [204, 404])
    this.#book.erase(person)
    this.#people[slot] = this.#book.addPerson()
    await this.redeliver(delivery)
    this.#options.onErased?.(delivery)
  }

  async #idOf(person: Person): Promise<string> {
    const deadline = Date.now() + (this.#options.findLimitMs ?? 0)
    while (person.memberId === null) {
      const { headers } = this.#book.account
      const { body } = await this.#client.until(
        'find',
        `/api/audience?userId=${person.userId}`,
        { headers },
        [200],
      )
      person.memberId = JSON.parse(body).data[0]?.id ?? null
      if (person.memberId !== null) break
      if (Date.now() > deadline) throw new Error(`${person.userId} was acknowledged, and is not a member`)
      await sleep(FIND_RETRY_MS)
    }
    return person.memberId
  }

  #pick(): Person {
    return this.#people[randomInt(this.#people.length)] as Person
  }

  #act(person: Person): Act {
    const dice = Math.random()
    const atMs = Math.max(Date.now(), person.relationship.atMs + 1)
    const id = { webhookEventId: this.#options.eventId?.() ?? ulid(atMs) }
    const { userId } = person
    if (dice < 0.15 || person.relationship.atMs === 0) {
      const state = person.relationship.state === 'following' ? 'blocked' : 'following'
      person.relationship = { atMs, state }
      const type = state === 'following' ? 'follow' : 'unfollow'
      return { person, event: lineEvent(type, userId, { timestamp: atMs, ...id }) }
    }
    const unsends = dice < 0.2 ? person.messageIds.shift() : undefined
    if (unsends !== undefined) {
      this.#book.unsend(unsends)
      return { person, event: lineEvent('unsend', userId, { unsend: { messageId: unsends }, ...id }) }
    }
    if (dice < 0.3) {
      return { person, event: lineEvent('postback', userId, { postback: { data: 'id=7' }, ...id }) }
    }
    const event = textMessage(userId, 'สวัสดีค่ะ, is the shop open?', { replyToken: randomUUID(), ...id })
    return { person, event, messageId: event.message.id }
  }
}

function chatCallback(userId: string, isMessage: boolean, status: string, atMs: number) {
  const at = new Date(atMs).toISOString()
  const common = { id: 17, channel: 'Channel::Line', contact_inbox: { source_id: userId } }
  const conversation = { ...common, status, updated_at: at }
  if (!isMessage) return { event: 'conversation_status_changed', ...conversation }
  const content = { message_type: 'incoming', content: 'hello', created_at: at }
  return { event: 'message_created', id: atMs, ...content, conversation }
}
