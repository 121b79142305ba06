/** Records what clients, people and the endpoint of one account have seen, and compares it with the database after a restore. */
import { expect } from 'vitest'
import type { Member } from '../../src/audience/member.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { Tenant } from './database.ts'
import type { Received } from './endpoints.ts'
import { signedDelivery } from './service.ts'

/** One person in six is erased. */
const ERASED_ONE_IN = 6
const LOOPS = 4

type Listed = Member & { deletedAt?: string }

/** Comparable states by id. A member who is not in the map does not exist. */
type Copy = Map<string, string>

const stateOf = ({ userId, tags, version, relationship }: Member) =>
  JSON.stringify([userId, tags, version, relationship])

export class RestoreBooks {
  readonly #tenant: Tenant
  url = ''
  /** user id → the number of its last acknowledged update */
  readonly updates = new Map<string, number>()
  readonly erased = new Set<string>()
  /** id → user id */
  readonly ids = new Map<string, string>()
  readonly idsGivenTwice: string[] = []
  /** copy of the client that follows the delta feed */
  readonly copy: Copy = new Map()
  restarts = 0
  #since = '2020-01-01T00:00:00.000Z'

  constructor(tenant: Tenant) {
    this.#tenant = tenant
  }

  async #call(method: string, path: string, body?: unknown) {
    const headers = { ...this.#tenant.headers, 'content-type': 'application/json' }
    const init = body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) }
    const response = await fetch(this.url + path, init)
    const text = await response.text()
    return { status: response.status, json: text === '' ? null : JSON.parse(text) }
  }

  /** Adds people, updates and erases them until `stop` is called or the service is killed. */
  startLoad() {
    let isStopped = false
    const loop = async () => {
      while (!isStopped) await this.#addPerson().catch(() => undefined)
    }
    const loops = Array.from({ length: LOOPS }, loop)
    return async () => {
      isStopped = true
      await Promise.all(loops)
    }
  }

  async #addPerson(): Promise<void> {
    const userId = randomUserId()
    const { path, init } = signedDelivery(this.#tenant, [lineEvent('follow', userId)])
    if ((await fetch(this.url + path, init)).status !== 200) return
    this.updates.set(userId, 0)
    const { id } = (await this.#call('GET', `/api/audience?userId=${userId}`)).json.data[0]
    if (this.ids.has(id)) this.idsGivenTwice.push(id)
    this.ids.set(id, userId)
    await this.#update(id, userId)
    if (this.ids.size % ERASED_ONE_IN === 0) await this.#erase(this.#anybody())
    else await this.#update(...this.#anybody())
  }

  #anybody(): [id: string, userId: string] {
    const present = [...this.ids].filter(([, userId]) => !this.erased.has(userId))
    return present[Math.floor(Math.random() * present.length)] as [string, string]
  }

  async #update(id: string, userId: string): Promise<void> {
    const number = (this.updates.get(userId) ?? 0) + 1
    const { status } = await this.#call('PUT', `/api/audience/${id}`, { tags: [`update${number}`] })
    if (status === 200) this.updates.set(userId, number)
  }

  async #erase([id, userId]: [id: string, userId: string]): Promise<void> {
    // Before the request, so that no concurrent loop updates the person.
    this.erased.add(userId)
    expect((await this.#call('DELETE', `/api/audience/${id}`)).status).toBe(204)
  }

  /** Follows the delta feed as docs/api.md says: with the newest time that it has seen, and from the beginning after 410. */
  async feed(): Promise<void> {
    const entries = await this.#walk(`&updatedSince=${this.#since}`)
    if (entries === null) {
      this.restarts += 1
      this.copy.clear()
    }
    for (const entry of entries ?? (await this.#walk('')) ?? []) {
      const at = entry.deletedAt ?? entry.updatedAt
      if (at > this.#since || entries === null) this.#since = this.#since > at ? this.#since : at
      if (entry.deletedAt === undefined) this.copy.set(entry.id, stateOf(entry))
      else this.copy.delete(entry.id)
    }
  }

  /** Null: 410. */
  async #walk(query: string): Promise<Listed[] | null> {
    const entries: Listed[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const position = cursor === '' ? '' : `&cursor=${cursor}`
      const { status, json } = await this.#call('GET', `/api/audience?limit=200${query}${position}`)
      if (status === 410) return null
      expect(status).toBe(200)
      entries.push(...json.data)
      cursor = json.nextCursor
    }
    return entries
  }

  async present(): Promise<{ members: Listed[]; copy: Copy }> {
    const members = (await this.#walk('')) ?? []
    return { members, copy: new Map(members.map((member) => [member.id, stateOf(member)])) }
  }
}

/** The states of a receiver that keeps the newest message about each member. */
export function copyOfReceiver(received: Received[]): Copy {
  const newest = new Map<string, Member & { deletedAt?: string }>()
  for (const { body } of received) {
    const { data } = JSON.parse(body)
    const at = (member: Listed) => member.deletedAt ?? member.updatedAt
    const known = newest.get(data.id)
    if (known === undefined || at(known) <= at(data)) newest.set(data.id, data)
  }
  const members = [...newest.values()].filter(({ deletedAt }) => deletedAt === undefined)
  return new Map(members.map((member) => [member.id, stateOf(member)]))
}
