/** The clients of the accounts: pages, streams, delta feeds, updates, erasures and verifications. */
import { setTimeout as sleep } from 'node:timers/promises'
import { belongsTo } from './people.mjs'
import { BrokenBook } from './requests.mjs'

const PAGE_SIZE = 50
const FEED_PAGE_SIZE = 200
const POLL_MS = 10
const TAGS = ['g0', 'g1', 'g2', 'g3', 'g4']

export class Clients {
  #requests
  #people
  #senders
  #receiver
  #random
  /** tenant → cursor of the walk over all pages */
  #cursors = new Map()
  /** tenant → {since, copy: member id → {version, relationship}}, kept by the delta feed alone */
  #feeds = new Map()
  acknowledged = { updates: 0, erasures: 0, read: 0 }

  constructor({ requests, people, senders, receiver, random }) {
    this.#requests = requests
    this.#people = people
    this.#senders = senders
    this.#receiver = receiver
    this.#random = random
  }

  /** The next page of a walk over all members. */
  async page(tenant) {
    const cursor = this.#cursors.get(tenant)
    const after = cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''
    const { data, nextCursor } = await this.#list('page', tenant, `limit=${PAGE_SIZE}${after}`)
    this.#requireOwn(tenant, data)
    this.#cursors.set(tenant, nextCursor)
  }

  async search(tenant) {
    const tag = this.#random.pick(TAGS)
    const filter = this.#random.pick([`tag=${tag}`, 'relationship=blocked', `q=${encodeURIComponent('สมห')}`])
    const { data } = await this.#list('search', tenant, `limit=20&${filter}`)
    this.#requireOwn(tenant, data)
  }

  /** @returns {Promise<object[]>} all members */
  async stream(tenant) {
    const headers = { ...tenant.headers, accept: 'application/x-ndjson' }
    const message = { method: 'GET', path: '/api/audience', headers }
    const { body } = await this.#requests.until('stream', message, [200])
    const members = body
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line))
    this.#requireOwn(tenant, members)
    return members
  }

  /** Walks through what changed since the last walk began. */
  async feed(tenant) {
    const feed = this.#feeds.get(tenant) ?? { since: new Date(0).toISOString(), copy: new Map() }
    this.#feeds.set(tenant, feed)
    const beganAt = new Date().toISOString()
    for (let cursor = null; ; ) {
      const after = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
      const query = `limit=${FEED_PAGE_SIZE}&updatedSince=${feed.since}${after}`
      const { data, nextCursor } = await this.#list('feed', tenant, query)
      for (const { id, deletedAt, version, relationship } of data) {
        if (deletedAt !== undefined) feed.copy.delete(id)
        else feed.copy.set(id, { version, relationship })
      }
      this.#requireOwn(
        tenant,
        data.filter(({ deletedAt }) => deletedAt === undefined),
      )
      if (nextCursor === null) break
      cursor = nextCursor
    }
    feed.since = beganAt
    return feed.copy
  }

  async update(tenant) {
    const person = this.#people.pick(tenant, ({ isMember, isUpdating }) => isMember && !isUpdating)
    if (person === null) return
    person.busy += 1
    person.isUpdating = true
    try {
      const count = person.updates + 1
      const tags = [TAGS[count % TAGS.length]]
      const body = JSON.stringify({ externalId: `c-${person.userId}`, tags, attributes: { count } })
      const headers = { ...tenant.headers, 'content-type': 'application/json' }
      const path = `/api/audience/${await this.#idOf(person)}`
      await this.#requests.until('update', { method: 'PUT', path, headers, body }, [200])
      person.updates = count
      this.acknowledged.updates += 1
    } finally {
      person.busy -= 1
      person.isUpdating = false
    }
  }

  /** A 404 is right only after an attempt whose answer was lost. */
  async erase(tenant) {
    const person = this.#people.pick(tenant, ({ isMember }) => isMember)
    if (person === null) return
    person.isLeaving = true
    while (person.busy > 0) await sleep(POLL_MS)
    const id = await this.#idOf(person)
    this.#receiver.expectErasure(tenant, id)
    const message = { method: 'DELETE', path: `/api/audience/${id}`, headers: tenant.headers }
    const { status, attempts } = await this.#requests.until('erase', message, [204, 404])
    if (status === 404 && attempts === 1)
      throw new BrokenBook(`member ${id} of ${person.userId} was not found`)
    this.#people.replace(person)
    this.#senders.redeliverErased(person.firstDelivery)
    this.acknowledged.erasures += 1
  }

  async verify(tenant) {
    const headers = { ...tenant.headers, 'content-type': 'application/json' }
    await this.#requests.until(
      'verify',
      { method: 'POST', path: '/api/line-oa/verify', headers, body: '{}' },
      [200],
    )
  }

  async #idOf(person) {
    if (person.memberId !== null) return person.memberId
    const { data } = await this.#list('find', person.tenant, `userId=${person.userId}`)
    this.#requireOwn(person.tenant, data)
    if (data.length !== 1) throw new BrokenBook(`${person.userId} was acknowledged, and is not a member`)
    person.memberId = data[0].id
    return person.memberId
  }

  async #list(kind, tenant, query) {
    const message = { method: 'GET', path: `/api/audience?${query}`, headers: tenant.headers }
    const { body } = await this.#requests.until(kind, message, [200])
    const page = JSON.parse(body)
    if (page === null) throw new BrokenBook(`account ${tenant.number} has no scope`)
    this.acknowledged.read += page.data.length
    return page
  }

  #requireOwn(tenant, members) {
    const foreign = members.find(({ userId }) => !belongsTo(tenant, userId))
    if (foreign !== undefined) {
      throw new BrokenBook(`the client of account ${tenant.number} read ${foreign.userId} of another account`)
    }
  }
}
