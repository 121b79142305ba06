/** The program behind the endpoints of all accounts, with the book of what they must receive. */
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { signStandard } from '../../dist/src/endpoints/messages.js'
import { signLine } from '../../dist/src/intake/line/signature.js'
import { belongsTo } from './people.mjs'
import { BrokenBook } from './requests.mjs'

/** Share of messages that are refused with 503, so that retries are part of the load. */
const REFUSED = 0.005
/** A body that was written before an erasure may still be on its way: a request takes at most 10 s. */
const IN_FLIGHT_MS = 15_000

export class Receiver {
  #random
  #onFault
  #server
  #people = null
  #tenants = []
  /** tenant → event id → {person, messageId}: sent to the service, and not received from it yet */
  #expected = new Map()
  /** tenant → ids of erased members whose `member.erased` has not arrived yet */
  #expectedErasures = new Map()
  #exempt = new Set()
  received = { line: 0, members: 0, repeated: 0, refused: 0 }

  /** @param {(error: Error) => void} onFault */
  constructor(random, onFault) {
    this.#random = random
    this.#onFault = onFault
  }

  /** @returns {Promise<string>} its address */
  async start() {
    this.#server = createServer((request, response) => {
      this.#receive(request, response).catch((error) => {
        response.destroy()
        if (error instanceof BrokenBook) this.#onFault(error)
      })
    }).listen(0, '127.0.0.1')
    await new Promise((resolve) => this.#server.once('listening', resolve))
    return `http://127.0.0.1:${this.#server.address().port}`
  }

  /** Must be called before the first event. */
  watch(tenants, people) {
    this.#tenants = tenants
    this.#people = people
    for (const tenant of tenants) {
      this.#expected.set(tenant, new Map())
      this.#expectedErasures.set(tenant, new Set())
    }
  }

  /** Called before a delivery is sent, because its events may arrive before its answer. */
  expect(tenant, acts) {
    if (tenant.lineEvents === null) return
    for (const { event, person, messageId } of acts) {
      if (tenant.lineEvents.length > 0 && !tenant.lineEvents.includes(event.type)) continue
      this.#expected.get(tenant).set(event.webhookEventId, { person, messageId })
    }
  }

  /** The content of an unsent message is not sent any more. */
  exempt(messageId) {
    this.#exempt.add(messageId)
  }

  expectErasure(tenant, memberId) {
    if (tenant.membersSecret !== null) this.#expectedErasures.get(tenant).add(memberId)
  }

  /**
   * What is missing, once nothing is in flight.
   * @returns {string[]}
   */
  missing() {
    const missing = []
    for (const tenant of this.#tenants) {
      for (const [eventId, { person, messageId }] of this.#expected.get(tenant)) {
        const isGone = this.#people.find(person.userId) === undefined
        if (isGone || this.#exempt.has(messageId)) this.#expected.get(tenant).delete(eventId)
        else missing.push(`endpoint of account ${tenant.number} misses event ${eventId} of ${person.userId}`)
      }
      for (const id of this.#expectedErasures.get(tenant)) {
        missing.push(`endpoint of account ${tenant.number} misses the erasure of member ${id}`)
      }
      if (tenant.membersSecret !== null) missing.push(...this.#staleMembers(tenant))
    }
    if (missing.length === 0) this.#exempt.clear()
    return missing
  }

  close() {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  #staleMembers(tenant) {
    return this.#people
      .of(tenant)
      .filter(({ isMember }) => isMember)
      .filter(({ received, relationship, updates, conversation }) => {
        const isCurrent =
          received !== null &&
          received.relationship === relationship.state &&
          received.version === updates + 1 &&
          (received.conversation?.status ?? null) === conversation.status
        return !isCurrent
      })
      .map(({ userId, received }) => {
        const state = JSON.stringify(received)
        return `endpoint of account ${tenant.number} has an old state of ${userId}: ${state}`
      })
  }

  async #receive(request, response) {
    const [, format, number] = request.url.split('/')
    const tenant = this.#tenants[Number(number)]
    const body = await text(request)
    if (format === 'line') verifyLine(request.headers, body, tenant)
    else verifyMembers(request.headers, body, tenant)
    if (this.#random.chance(REFUSED)) {
      this.received.refused += 1
      response.writeHead(503).end('busy')
      return
    }
    if (format === 'line') this.#receiveEvents(tenant, JSON.parse(body).events)
    else this.#receiveChange(tenant, JSON.parse(body))
    response.end('ok')
  }

  #receiveEvents(tenant, events) {
    for (const { webhookEventId, source } of events) {
      this.#requireOwn(tenant, source.userId)
      this.received.line += 1
      if (!this.#expected.get(tenant).delete(webhookEventId)) this.received.repeated += 1
    }
  }

  #receiveChange(tenant, { type, data }) {
    this.received.members += 1
    if (type === 'member.erased') this.#expectedErasures.get(tenant).delete(data.id)
    if (type !== 'member.created' && type !== 'member.updated') return
    this.#requireOwn(tenant, data.userId)
    const person = this.#people.find(data.userId)
    if (person === undefined) return
    const { updatedAt, relationship, version, conversation } = data
    if (person.received !== null && updatedAt < person.received.updatedAt) return
    person.received = { updatedAt, relationship, version, conversation }
  }

  #requireOwn(tenant, userId) {
    if (!belongsTo(tenant, userId)) {
      throw new BrokenBook(`the endpoint of account ${tenant.number} received ${userId} of another account`)
    }
    const erased = this.#people.erased.get(userId)
    if (erased !== undefined && Date.now() > erased.atMs + IN_FLIGHT_MS) {
      throw new BrokenBook(`the endpoint of account ${tenant.number} received ${userId}, who was erased`)
    }
  }
}

function verifyLine(headers, body, tenant) {
  if (headers['x-line-signature'] !== signLine(body, tenant.channelSecret)) {
    throw new BrokenBook(`the endpoint of account ${tenant.number} received a wrong signature`)
  }
}

function verifyMembers(headers, body, tenant) {
  const content = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`
  if (headers['webhook-signature'] !== `v1,${signStandard(content, tenant.membersSecret)}`) {
    throw new BrokenBook(`the endpoint of account ${tenant.number} received a wrong webhook-signature`)
  }
}
