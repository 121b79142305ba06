/** Senders and clients of all kinds, with books of what was acknowledged to them. */
import { setTimeout as sleep } from 'node:timers/promises'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addCredentials, type Tenant } from './database.ts'
import { RetryingClient } from './retrying-client.ts'
import { signedDelivery } from './service.ts'

/** Reached only if a member is lost. */
const FIND_LIMIT_MS = 20_000
/** Leaves the processor to the service. */
const PAUSE_MS = 5

/** Environment of an instance without rate limits. */
export const NO_LIMITS = {
  RATE_LIMIT_MAX: '0',
  TRACKING_ADDRESS_EVENTS_PER_MINUTE: '0',
  TRACKING_ADDRESS_BYTES_PER_MINUTE: '0',
  TRACKING_KEY_EVENTS_PER_MINUTE: '0',
  TRACKING_KEY_BYTES_PER_MINUTE: '0',
}

/** What must all be 0. */
export interface Discrepancies {
  missing: number
  twice: number
  lostUpdates: number
  erasedAndBack: number
  revokedAndLetIn: number
}

export class FailoverLoad {
  readonly client: RetryingClient
  readonly #tenant: Tenant
  readonly #database: TextDatabase
  readonly #events = new Map<string, number>()
  readonly #updates = new Map<string, number>()
  readonly #erased: string[] = []
  #revokedAndLetIn = 0
  #work: Array<Promise<void>> = []
  #isFinished = false
  acknowledged = { events: 0, updates: 0, erasures: 0, revocations: 0 }

  /** @param database writes credentials, as another program does */
  constructor(urls: string[], tenant: Tenant, database: TextDatabase) {
    this.client = new RetryingClient(urls)
    this.#tenant = tenant
    this.#database = database
  }

  start(): void {
    const repeat = async (work: () => Promise<void>) => {
      while (!this.#isFinished) {
        await work()
        await sleep(PAUSE_MS)
      }
    }
    const line = Array.from({ length: 6 }, randomUserId)
    const chat = Array.from({ length: 2 }, randomUserId)
    const tracked = Array.from({ length: 2 }, randomUserId)
    const updated = Array.from({ length: 2 }, randomUserId)
    this.#work = [
      ...line.map((userId) => repeat(() => this.#deliver(userId))),
      ...chat.map((userId) => repeat(() => this.#chat(userId))),
      ...tracked.map((userId) => repeat(() => this.#track(userId))),
      ...updated.map((userId) => repeat(() => this.#update(userId))),
      ...[1, 2].map(() => repeat(() => this.#erase())),
      repeat(() => this.#revoke()),
    ]
    // `finish` reports what failed.
    for (const work of this.#work) work.catch(() => undefined)
  }

  /** Resolves when everything that was begun is acknowledged. */
  async finish(): Promise<void> {
    this.#isFinished = true
    await Promise.all(this.#work)
  }

  async #deliver(userId: string): Promise<void> {
    const { path, init } = signedDelivery(this.#tenant, [lineEvent('message', userId)])
    await this.client.until(path, init, [200])
    this.#count(userId)
  }

  async #chat(userId: string): Promise<void> {
    const body = JSON.stringify({
      event: 'message_created',
      id: this.acknowledged.events * 1_000 + Math.floor(Math.random() * 1_000),
      message_type: 'incoming',
      content: 'hello',
      created_at: new Date().toISOString(),
      sender: { type: 'contact', additional_attributes: { social_line_user_id: userId } },
      conversation: { id: 1, channel: 'Channel::Line', contact_inbox: { source_id: userId } },
    })
    const headers = { 'content-type': 'application/json', 'x-chatwoot-delivery': randomUserId() }
    await this.client.until(
      `/api/mbox/callback/${this.#tenant.oaHash}`,
      { method: 'POST', headers, body },
      [200],
    )
    this.#count(userId)
  }

  async #track(userId: string): Promise<void> {
    const event = { type: 'track', event: 'opened', userId, messageId: randomUserId() }
    const body = JSON.stringify({ writeKey: this.#tenant.trackingKey, batch: [event] })
    await this.client.until('/api/tracking', { method: 'POST', body }, [200])
    this.#count(userId)
  }

  async #update(userId: string): Promise<void> {
    const count = (this.#updates.get(userId) ?? 0) + 1
    if (count === 1) await this.#deliver(userId)
    const id = await this.#find(userId)
    const headers = { ...this.#tenant.headers, 'content-type': 'application/json' }
    const body = JSON.stringify({ attributes: { count } })
    await this.client.until(`/api/audience/${id}`, { method: 'PUT', headers, body }, [200])
    this.#updates.set(userId, count)
    this.acknowledged.updates += 1
  }

  /** A 404 is an answer, too: an earlier DELETE whose answer was lost has erased the member. */
  async #erase(): Promise<void> {
    const userId = randomUserId()
    const { path, init } = signedDelivery(this.#tenant, [lineEvent('follow', userId)])
    await this.client.until(path, init, [200])
    const id = await this.#find(userId)
    await this.client.until(
      `/api/audience/${id}`,
      { method: 'DELETE', headers: this.#tenant.headers },
      [204, 404],
    )
    this.#erased.push(userId)
    this.acknowledged.erasures += 1
    // LINE may deliver the event again.
    await this.client.until(path, init, [200])
  }

  /** All instances must refuse a key from the moment at which its revocation is acknowledged. */
  async #revoke(): Promise<void> {
    const { accountId, organizationId } = this.#tenant
    const added = await this.#untilDone(() => addCredentials(this.#database, accountId, organizationId))
    const revoke = `update api_client set status = 'revoked' where id = $1`
    await this.#untilDone(() => this.#database.query(revoke, [added.clientRowId]))
    this.acknowledged.revocations += 1
    for (const url of this.client.urls) {
      // An upgrade may take an instance out of service during this loop.
      if (!this.client.urls.includes(url)) continue
      const { status } = await this.client.send(url, '/api/audience?limit=1', { headers: added.headers })
      if (status === 200) this.#revokedAndLetIn += 1
    }
  }

  /** An instance that has not noticed a takeover yet reads a former primary that still runs, so an empty list is asked again. */
  async #find(userId: string): Promise<string> {
    const { headers } = this.#tenant
    for (const deadline = Date.now() + FIND_LIMIT_MS; Date.now() < deadline; await sleep(PAUSE_MS * 10)) {
      const { body } = await this.client.until(`/api/audience?userId=${userId}`, { headers }, [200])
      const [member] = JSON.parse(body).data
      if (member !== undefined) return member.id
    }
    throw new Error('an acknowledged member is missing')
  }

  #count(userId: string): void {
    this.#events.set(userId, (this.#events.get(userId) ?? 0) + 1)
    this.acknowledged.events += 1
  }

  /** Repeats what is safe to repeat until the database acknowledges it. */
  async #untilDone<T>(work: () => Promise<T>): Promise<T> {
    while (!this.client.isClosed) {
      try {
        return await work()
      } catch {
        await sleep(PAUSE_MS * 10)
      }
    }
    throw new Error('the test ended before the database answered')
  }

  /** Compares the books with the database, once the load has finished. */
  async compare(): Promise<Discrepancies> {
    const rows = await this.#database.query<{ user_id: string; event_count: bigint }>(
      `select user_id, event_count from audience_member
        union all select user_id, event_count from tracked_activity`,
    )
    const stored = new Map(rows.map(({ user_id, event_count }) => [user_id, Number(event_count)]))
    let [missing, twice] = [0, 0]
    for (const [userId, count] of this.#events) {
      const surplus = (stored.get(userId) ?? 0) - count
      if (surplus > 0) twice += surplus
      else missing -= surplus
    }
    const updates = await this.#database.query<{ user_id: string; count: number }>(
      `select user_id, (attributes ->> 'count')::int as count from audience_member where attributes ? 'count'`,
    )
    const counts = new Map(updates.map(({ user_id, count }) => [user_id, count]))
    const lost = [...this.#updates].filter(([userId, count]) => counts.get(userId) !== count)
    const back = await this.#database.query(
      `select user_id from audience_member where user_id = any ($1)
        union all select user_id from event where user_id = any ($1)`,
      [this.#erased],
    )
    return {
      missing,
      twice,
      lostUpdates: lost.length,
      erasedAndBack: back.length,
      revokedAndLetIn: this.#revokedAndLetIn,
    }
  }
}
