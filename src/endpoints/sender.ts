/**
 * Sends deliveries to endpoints. A row of endpoint_delivery is leased by one process at a time: by the process that committed it,
 * which sends it within milliseconds, or later by a process that polls for rows that are due. A process that dies holds its
 * leases for LEASE_MS at most.
 */
import type { LeasedDelivery } from '../intake/flush.ts'
import { endpointAnswered } from '../observability/facts.ts'
import { int4Array, int8Array } from '../postgres/binary-array.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import { secretOrNull } from '../secret.ts'
import { RefusedUrl, readEndpointUrl } from './address.ts'
import { type ClaimedRow, type ContentRow, claimDue, loadContents, pauseEndpoint } from './backlog.ts'
import { Batcher } from './batcher.ts'
import { takeMemberChanges } from './changes.ts'
import { EndpointState } from './endpoint-state.ts'
import { type Content, writeMessage } from './messages.ts'
import { type Answer, post, type Target } from './post.ts'
import { Settlements } from './settlements.ts'

/** Also in flush_events. Longer than a request (10 s) with the wait before it. */
const LEASE_MS = 30_000
/** An attempt must begin early enough to end within the lease. */
const LATEST_START_MS = LEASE_MS - 12_000
/** Changes of members are sent within 2 s, so this is well below. */
const POLL_MS = 300
/** Requests of this process in flight. Sockets and their memory are limited by it. */
const IN_FLIGHT_MAX = 1_024
/** Deliveries of endpoints without a state in this process that one poll leases. */
const FIRST_CLAIM = 16
/** A shutdown waits this long for requests in flight; later ones are sent again. */
const STOP_MAX_MS = 4_000

/** Deliveries of an endpoint whose contents are read before their turn, as many as it may have in flight. */
const READ_AHEAD = 16
/** A content that was read earlier is read again, so that an erasure or an unsend meanwhile counts. */
const CONTENT_MAX_AGE_MS = 20

interface Item extends LeasedDelivery {
  leasedAtMs: number
  /** The content read ahead, and when. */
  content: Promise<ContentRow | undefined> | null
  readAtMs: number
}

export class Sender {
  readonly #connection: PinnedConnection
  readonly #endpoints = new Map<bigint, EndpointState<Item>>()
  readonly #contents: Batcher<Item, ContentRow>
  readonly #settlements: Settlements
  readonly #isOwnUrl: (url: URL) => boolean
  #inFlight = 0
  readonly #inFlightOf = new Map<bigint, number>()
  #timer: NodeJS.Timeout | undefined
  #polling: Promise<void> | null = null
  #isStopped = true

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(database: Database, isOwnUrl: (url: URL) => boolean) {
    this.#connection = database.pin()
    this.#settlements = new Settlements(this.#connection)
    this.#contents = new Batcher((items) => this.#load(items))
    this.#isOwnUrl = isOwnUrl
  }

  start(): void {
    this.#isStopped = false
    this.#timer = setInterval(() => this.#poll(), POLL_MS)
  }

  /** Ends polling, returns what was leased and not begun, and waits a while for requests in flight. */
  async stop(): Promise<void> {
    clearInterval(this.#timer)
    this.#isStopped = true
    await this.#polling
    for (const state of this.#endpoints.values()) {
      for (const item of state.waiting.splice(0)) this.#settlements.release(item)
    }
    const deadlineMs = performance.now() + STOP_MAX_MS
    while (this.#inFlight > 0 && performance.now() < deadlineMs) await new Promise((r) => setTimeout(r, 20))
    await this.#settlements.settle()
  }

  /** Sends what a flush of this process has just committed and leased. */
  readonly handOver = (deliveries: LeasedDelivery[]): void => {
    const leasedAtMs = performance.now()
    for (const delivery of deliveries) this.#enqueue(delivery, leasedAtMs)
    this.#startNext()
  }

  #enqueue(delivery: LeasedDelivery, leasedAtMs: number): void {
    const state = this.#stateOf(delivery.endpointId)
    if (this.#isStopped || state.room === 0) this.#settlements.release(delivery)
    else state.waiting.push({ ...delivery, leasedAtMs, content: null, readAtMs: 0 })
  }

  #stateOf(endpointId: bigint): EndpointState<Item> {
    const state = this.#endpoints.get(endpointId) ?? new EndpointState<Item>()
    this.#endpoints.set(endpointId, state)
    return state
  }

  #poll(): void {
    this.#polling ??= this.#claim()
      // While the database is down nothing can be sent. The next poll tries again.
      .catch(() => undefined)
      .finally(() => {
        this.#polling = null
      })
  }

  async #claim(): Promise<void> {
    // A failure to follow one feed must not hold up what is due already.
    await takeMemberChanges(this.#connection).catch(() => undefined)
    const states = [...this.#endpoints]
    const now = performance.now()
    const values = [
      int8Array(states.map(([id]) => id)),
      int4Array(states.map(([, state]) => state.room)),
      FIRST_CLAIM,
      int4Array(states.map(([, state]) => state.recoveredAgoMs(now))),
      LEASE_MS,
    ]
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: claimDue, values }])
    const leasedAtMs = performance.now()
    for (const state of this.#endpoints.values()) state.hasMore = false
    for (const { id, channel_oa_id, endpoint_id } of rows as ClaimedRow[]) {
      const state = this.#stateOf(endpoint_id)
      this.#enqueue({ id, accountId: channel_oa_id, endpointId: endpoint_id }, leasedAtMs)
      state.hasMore = state.room === 0
    }
    this.#startNext()
  }

  /** Starts what may start, one delivery of each endpoint in turn. */
  #startNext(): void {
    for (let hasStarted = true; hasStarted; ) {
      hasStarted = false
      for (const state of this.#endpoints.values()) {
        const [next] = state.waiting
        if (next === undefined || !this.#mayStart(state, next)) continue
        state.waiting.shift()
        void this.#attempt(state, next)
        this.#readAhead(state)
        hasStarted = true
      }
    }
  }

  #readAhead(state: EndpointState<Item>): void {
    const now = performance.now()
    for (const item of state.waiting.slice(0, READ_AHEAD)) {
      if (item.content !== null) continue
      item.content = this.#contents.load(item)
      item.readAtMs = now
      // Its attempt reads it again, and meets the failure then.
      item.content.catch(() => undefined)
    }
  }

  #contentOf(item: Item): Promise<ContentRow | undefined> {
    const isFresh = performance.now() - item.readAtMs <= CONTENT_MAX_AGE_MS
    return item.content !== null && isFresh ? item.content : this.#contents.load(item)
  }

  /** An account with many endpoints may have as many requests in flight as are free for all others. */
  #mayStart(state: EndpointState<Item>, { accountId }: Item): boolean {
    const free = IN_FLIGHT_MAX - this.#inFlight
    return state.mayStart(free) && (this.#inFlightOf.get(accountId) ?? 0) < free
  }

  #countInFlight(state: EndpointState<Item>, { accountId }: Item, change: 1 | -1): void {
    this.#inFlight += change
    state.inFlight += change
    const ofAccount = (this.#inFlightOf.get(accountId) ?? 0) + change
    if (ofAccount === 0) this.#inFlightOf.delete(accountId)
    else this.#inFlightOf.set(accountId, ofAccount)
  }

  async #attempt(state: EndpointState<Item>, item: Item): Promise<void> {
    this.#countInFlight(state, item, 1)
    const startedAtMs = performance.now()
    try {
      if (startedAtMs - item.leasedAtMs > LATEST_START_MS) this.#settlements.release(item)
      else await this.#send(state, item, startedAtMs)
    } catch {
      // The database is down. The lease ends by itself.
    } finally {
      this.#countInFlight(state, item, -1)
      this.#startNext()
      if (state.isHungry) this.#poll()
    }
  }

  async #send(state: EndpointState<Item>, item: Item, startedAtMs: number): Promise<void> {
    let row = await this.#contentOf(item)
    if (row === undefined) return
    if (row.status !== 'active') return this.#settlements.release(item)
    const { url } = row
    const target = this.#targetOf(row)
    const answer =
      target instanceof RefusedUrl
        ? { status: null, text: target.message, retryAfterMs: null }
        : await post(target, async (isNewConnection) => {
            // Something may have been erased while the connection was opened.
            if (isNewConnection) row = await this.#contents.load(item)
            const isReady = row !== undefined && row.status === 'active' && row.url === url
            return isReady ? writeMessage(contentOf(row as ContentRow), Date.now()) : null
          })
    if (answer !== null) this.#judge(state, item, answer, row, startedAtMs)
    else if (row?.status === 'active' && row.url === url) this.#settlements.complete(item, row.change)
    else this.#settlements.release(item)
  }

  #judge(
    state: EndpointState<Item>,
    item: Item,
    answer: Answer,
    sent: ContentRow | undefined,
    startedAtMs: number,
  ): void {
    const tookMs = performance.now() - startedAtMs
    const isAccepted = answer.status !== null && answer.status >= 200 && answer.status < 300
    state.note(isAccepted, tookMs)
    const outcome = isAccepted ? 'accepted' : answer.status === null ? 'no_response' : 'rejected'
    endpointAnswered.publish({ outcome, sinceCommitMs: (sent?.age_ms ?? 0) + tookMs })
    this.#settlements.note(item.endpointId, answer)
    if (isAccepted) this.#settlements.complete(item, sent?.change ?? null)
    else this.#settlements.postpone(item, answer, sent?.attempts ?? 1, tookMs)
    if (answer.status === 410) {
      void this.#connection
        .pipelineIdempotent([{ statement: pauseEndpoint, values: [item.endpointId] }])
        .catch(() => undefined)
    }
  }

  #targetOf(row: ContentRow): Target | RefusedUrl {
    const { url, allow_private_network: allowPrivateNetwork } = row
    if (!(row.format === 'line' ? row.channel_secret : row.secret)) {
      return new RefusedUrl(`there is no ${row.format === 'line' ? 'channel secret' : 'secret'} to sign with`)
    }
    try {
      const target = { url: readEndpointUrl(url, allowPrivateNetwork), allowPrivateNetwork }
      if (this.#isOwnUrl(target.url)) return new RefusedUrl("the URL is this service's own: a loop")
      return target
    } catch (error) {
      if (error instanceof RefusedUrl) return error
      throw error
    }
  }

  async #load(items: Item[]): Promise<Array<ContentRow | undefined>> {
    const values = [int8Array(items.map(({ accountId }) => accountId)), int8Array(items.map(({ id }) => id))]
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: loadContents, values }])
    const byId = new Map((rows as ContentRow[]).map((row) => [row.id, row]))
    return items.map(({ id }) => byId.get(id))
  }
}

function contentOf(row: ContentRow): Content {
  if (row.format === 'line') {
    return {
      format: 'line',
      destination: row.destination,
      events: (row.events ?? []).filter((event) => event !== null),
      channelSecret: secretOrNull(row.channel_secret),
      replies: row.replies,
      isRetry: row.attempts > 1,
    }
  }
  return {
    format: 'members',
    id: `msg_${row.id}_${row.change ?? 0}`,
    type: row.type ?? '',
    data: row.data,
    secret: secretOrNull(row.secret),
    previousSecret: secretOrNull(row.previous_secret),
  }
}
