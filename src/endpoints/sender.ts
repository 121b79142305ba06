/**
 * Sends deliveries to endpoints. A row of endpoint_delivery is leased by one process at a time: by the process that committed it,
 * which sends it within milliseconds, or later by a process that polls for rows that are due. A process that dies holds its
 * leases for LEASE_MS at most.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { LeasedDelivery } from '../intake/flush.ts'
import { endpointAnswered } from '../observability/facts.ts'
import { int4Array, int8Array } from '../postgres/binary-array.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import { RefusedUrl } from './address.ts'
import { type ClaimedRow, type ContentRow, claimDue, pauseEndpoint } from './backlog.ts'
import { takeMemberChanges } from './changes.ts'
import { Contents, contentOf, type ReadDelivery } from './contents.ts'
import { EndpointState } from './endpoint-state.ts'
import { writeMessage } from './messages.ts'
import { type Answer, isAccepted, post } from './post.ts'
import { Settlements } from './settlements.ts'
import { Targets } from './targets.ts'

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

interface Item extends ReadDelivery {
  leasedAtMs: number
}

export class Sender {
  readonly #connection: PinnedConnection
  readonly #endpoints = new Map<bigint, EndpointState<Item>>()
  readonly #contents: Contents
  readonly #settlements: Settlements
  readonly #targets: Targets
  #inFlight = 0
  readonly #inFlightOf = new Map<bigint, number>()
  #timer: NodeJS.Timeout | undefined
  #polling: Promise<void> | null = null
  #isStopped = true

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(database: Database, isOwnUrl: (url: URL) => boolean) {
    this.#connection = database.pin()
    this.#settlements = new Settlements(this.#connection)
    this.#contents = new Contents(this.#connection)
    this.#targets = new Targets(isOwnUrl)
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
    while (this.#inFlight > 0 && performance.now() < deadlineMs) await sleep(20)
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
        this.#contents.readAhead(state.waiting)
        hasStarted = true
      }
    }
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
    let row = await this.#contents.read(item)
    if (row === undefined) return
    if (row.status !== 'active') return this.#settlements.release(item)
    const { url } = row
    const target = this.#targets.of(row)
    const answer =
      target instanceof RefusedUrl
        ? { status: null, text: target.message, retryAfterMs: null }
        : await post(target, async (isNewConnection) => {
            // Something may have been erased while the connection was opened.
            if (isNewConnection) row = await this.#contents.readAgain(item)
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
    const wasAccepted = isAccepted(answer)
    state.note(wasAccepted, tookMs)
    const outcome = wasAccepted ? 'accepted' : answer.status === null ? 'no_response' : 'rejected'
    endpointAnswered.publish({ outcome, sinceCommitMs: (sent?.age_ms ?? 0) + tookMs })
    this.#settlements.note(item.endpointId, answer)
    if (wasAccepted) this.#settlements.complete(item, sent?.change ?? null)
    else this.#settlements.postpone(item, answer, sent?.attempts ?? 1, tookMs)
    if (answer.status === 410) {
      void this.#connection
        .pipelineIdempotent([{ statement: pauseEndpoint, values: [item.endpointId] }])
        .catch(() => undefined)
    }
  }
}
