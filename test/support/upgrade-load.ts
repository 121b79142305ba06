/** Load of followers, lists, delta feeds and outgoing webhooks, and a comparison with what was acknowledged. */
import { setTimeout as sleep } from 'node:timers/promises'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import type { Tenant } from './database.ts'
import type { Received } from './endpoints.ts'
import type { RetryingClient } from './retrying-client.ts'
import { signedDelivery } from './service.ts'
import type { Listed } from './walk.ts'

const FOLLOWERS = 4
/** Members that nobody changes. Three pages. */
const RESIDENTS = 60
const PAGE_SIZE = 25
/** Time between two requests of one client, which leaves the processor to the service. */
const PAUSE_MS = 20

interface Member extends Listed {
  relationship: string
}

/** All of these must be 0. */
export interface UpgradeDiscrepancies {
  /** events of followers that are stored less or more often than once */
  missing: number
  twice: number
  wrongRelationships: number
  /** residents that a walk over all pages returned less or more often than once */
  wrongWalks: number
  /** members whose last state the delta feeds did not return, or that they still have although erased */
  missedChanges: number
  /** acknowledged events that the endpoint of the format `line` did not receive */
  unsentEvents: number
  /** followers whose last state the endpoint of the format `members` did not receive */
  unsentMembers: number
}

export class UpgradeLoad {
  readonly #client: RetryingClient
  readonly #tenant: Tenant
  readonly #residents = Array.from({ length: RESIDENTS }, randomUserId)
  readonly #relationships = new Map<string, string>()
  /** ids of acknowledged events, by follower */
  readonly #events = new Map<string, Set<string>>()
  /** members as a client of the delta feed stores them, by id */
  readonly #copies = new Map<string, Member>()
  #wrongWalks = 0
  #work: Array<Promise<void>> = []
  #isFinished = false
  acknowledged = { follows: 0, walks: 0, feeds: 0 }

  constructor(client: RetryingClient, tenant: Tenant) {
    this.#client = client
    this.#tenant = tenant
  }

  async start(): Promise<void> {
    const follows = this.#residents.map((userId) => lineEvent('follow', userId))
    const { path, init } = signedDelivery(this.#tenant, follows)
    await this.#client.until(path, init, [200])
    const repeat = async (work: () => Promise<void>) => {
      while (!this.#isFinished) {
        await work()
        await sleep(PAUSE_MS)
      }
    }
    const followers = Array.from({ length: FOLLOWERS }, randomUserId)
    this.#work = [
      ...followers.map((userId) => repeat(() => this.#follow(userId))),
      repeat(() => this.#walk()),
      repeat(() => this.#readFeed()),
    ]
    // `finish` reports what failed.
    for (const work of this.#work) work.catch(() => undefined)
  }

  /** Resolves when everything that was begun is acknowledged, and the client of the delta feed has read it to its end. */
  async finish(): Promise<void> {
    this.#isFinished = true
    await Promise.all(this.#work)
    await this.#readFeed()
  }

  /** Sends each delivery twice, because LINE may redeliver an acknowledged one to any instance. */
  async #follow(userId: string): Promise<void> {
    const type = this.#relationships.get(userId) === 'following' ? 'unfollow' : 'follow'
    const event = lineEvent(type, userId)
    const { path, init } = signedDelivery(this.#tenant, [event])
    await Promise.all([this.#client.until(path, init, [200]), this.#client.until(path, init, [200])])
    this.#relationships.set(userId, type === 'follow' ? 'following' : 'blocked')
    this.#events.set(userId, (this.#events.get(userId) ?? new Set()).add(event.webhookEventId))
    this.acknowledged.follows += 1
  }

  async #walk(): Promise<void> {
    const seen = (await this.#readAll('')).map(({ userId }) => userId)
    const counts = this.#residents.map((userId) => seen.filter((other) => other === userId).length)
    this.#wrongWalks += counts.filter((count) => count !== 1).length
    this.acknowledged.walks += 1
  }

  #since = new Date().toISOString()

  async #readFeed(): Promise<void> {
    const startedAt = new Date().toISOString()
    for (const entry of await this.#readAll(`&updatedSince=${this.#since}`)) this.#copies.set(entry.id, entry)
    this.#since = startedAt
    this.acknowledged.feeds += 1
  }

  /** Each page from any instance. */
  async #readAll(query: string): Promise<Member[]> {
    const entries: Member[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const path: string = `/api/audience?limit=${PAGE_SIZE}${query}${cursor && `&cursor=${cursor}`}`
      const { body } = await this.#client.until(path, { headers: this.#tenant.headers }, [200])
      const page: { data: Member[]; nextCursor: string | null } = JSON.parse(body)
      entries.push(...page.data)
      cursor = page.nextCursor
    }
    return entries
  }

  /** Compares what was acknowledged with the database and with what the endpoints received, once the load has finished. */
  async compare(
    database: TextDatabase,
    received: Record<'line' | 'members', Received[]>,
  ): Promise<UpgradeDiscrepancies> {
    const followers = [...this.#events.keys()]
    const rows = await database.query<{ user_id: string; count: number }>(
      'select user_id, count(*)::int as count from event where user_id = any ($1) group by user_id',
      [followers],
    )
    const stored = new Map(rows.map(({ user_id, count }) => [user_id, count]))
    const surplus = followers.map(
      (userId) => (stored.get(userId) ?? 0) - (this.#events.get(userId)?.size ?? 0),
    )
    const members = await this.#readAll('')
    const states = members.filter(({ userId }) => this.#events.has(userId))
    const isReceived = stateOf(received.members.map(({ body }) => JSON.parse(body).data))
    const isCopied = stateOf([...this.#copies.values()])
    const sent = new Set(received.line.flatMap(({ body }) => eventIds(body)))
    const acknowledged = [...this.#events.values()].flatMap((ids) => [...ids])
    const present = new Set(members.map(({ id }) => id))
    const ghosts = [...this.#copies.values()].filter(({ id, deletedAt }) => !deletedAt && !present.has(id))
    return {
      missing: sum(surplus.map((count) => Math.max(0, -count))),
      twice: sum(surplus.map((count) => Math.max(0, count))),
      wrongRelationships: followers.length - states.filter((state) => this.#isAsLeft(state)).length,
      wrongWalks: this.#wrongWalks,
      missedChanges: members.filter((member) => !isCopied(member)).length + ghosts.length,
      unsentEvents: acknowledged.filter((id) => !sent.has(id)).length,
      unsentMembers: states.filter((member) => !isReceived(member)).length,
    }
  }

  #isAsLeft({ userId, relationship }: Member): boolean {
    return this.#relationships.get(userId) === relationship
  }
}

const sum = (values: number[]) => values.reduce((total, value) => total + value, 0)

/** Whether one of the copies is of the member as it is now. */
function stateOf(copies: Listed[]): (member: Listed) => boolean {
  const states = new Set(copies.map(({ id, updatedAt }) => `${id} ${updatedAt}`))
  return ({ id, updatedAt }) => states.has(`${id} ${updatedAt}`)
}

function eventIds(body: string): string[] {
  const { events } = JSON.parse(body) as { events: Array<{ webhookEventId: string }> }
  return events.map(({ webhookEventId }) => webhookEventId)
}
