/**
 * Sends deliveries to endpoints. The life of a delivery in this process:
 *
 * 1. Leased: a row of endpoint_delivery is leased by one process at a time. The process that committed it sends it within
 *    milliseconds (`handOver`). Later, a process that polls finds it due (`#claim`). A process that dies holds its leases for
 *    LEASE_MS at most.
 * 2. Queued: it waits in the queue of its endpoint, as an id without content. Endpoints take turns (`#startNext`).
 * 3. Connected: `targets.ts` says where the endpoint is, `post.ts` takes or opens a connection.
 * 4. Read: when the connection stands, `contents.ts` reads what is stored now. Erasures of the account wait from here on.
 * 5. Written: `messages.ts` builds and signs the body, `post.ts` writes it, within a second. Erasures wait no longer.
 * 6. Answered: `#judge` decides from the status alone.
 * 7. Settled: `settlements.ts` deletes the row, moves its next attempt, or returns the lease.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { LeasedDelivery } from '../intake/flush.ts'
import { endpointAnswered } from '../observability/facts.ts'
import { int4Array, int8Array } from '../postgres/binary-array.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import { RefusedUrl } from './address.ts'
import { attempt, isSame } from './attempt.ts'
import { type ClaimedRow, type ContentRow, claimDue, pauseEndpoint } from './backlog.ts'
import { takeMemberChanges } from './changes.ts'
import { Contents } from './contents.ts'
import { EndpointState } from './endpoint-state.ts'
import { type Answer, isAccepted } from './post.ts'
import { HostResolver } from './resolver.ts'
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

interface Item extends LeasedDelivery {
  leasedAtMs: number
  /** This one included. */
  attempts: number
  committedAtMs: number
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
  constructor(database: Database, isOwnUrl: (url: URL) => boolean, resolver = new HostResolver()) {
    this.#connection = database.pin()
    this.#settlements = new Settlements(this.#connection)
    this.#contents = new Contents(this.#connection)
    this.#targets = new Targets(this.#connection, isOwnUrl, resolver)
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
    for (const delivery of deliveries) {
      this.#enqueue({ ...delivery, leasedAtMs, attempts: 1, committedAtMs: leasedAtMs })
    }
    this.#startNext()
  }

  #enqueue(item: Item): void {
    const state = this.#stateOf(item.endpointId)
    if (this.#isStopped || state.room === 0) this.#settlements.release(item)
    else state.waiting.push(item)
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
    for (const { id, channel_oa_id, endpoint_id, attempts, age_ms } of rows as ClaimedRow[]) {
      const state = this.#stateOf(endpoint_id)
      const delivery = { id, accountId: channel_oa_id, endpointId: endpoint_id }
      this.#enqueue({ ...delivery, leasedAtMs, attempts, committedAtMs: leasedAtMs - age_ms })
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
    const endpoint = await this.#targets.find(item.endpointId)
    // A trigger deletes the deliveries of an endpoint that was removed.
    if (endpoint === undefined) return
    const { row, target } = endpoint
    if (row.status !== 'active') return this.#settlements.release(item)
    if (target instanceof RefusedUrl) {
      return this.#judge(
        state,
        item,
        { status: null, reason: target.message, retryAfterMs: null },
        null,
        startedAtMs,
      )
    }
    const sent = await attempt(this.#contents, endpoint.row, target, item)
    if (sent.answer !== null) this.#judge(state, item, sent.answer, sent.row, startedAtMs)
    else if (sent.row !== null && isSame(endpoint.row, sent.row))
      this.#settlements.complete(item, sent.row.change)
    else {
      this.#targets.forget(item.endpointId)
      this.#settlements.release(item)
    }
  }

  #judge(
    state: EndpointState<Item>,
    item: Item,
    answer: Answer,
    sent: ContentRow | null,
    startedAtMs: number,
  ): void {
    const nowMs = performance.now()
    const tookMs = nowMs - startedAtMs
    const wasAccepted = isAccepted(answer)
    state.note(wasAccepted, tookMs)
    const outcome = wasAccepted ? 'accepted' : answer.status === null ? 'no_response' : 'rejected'
    endpointAnswered.publish({ outcome, sinceCommitMs: nowMs - item.committedAtMs })
    this.#settlements.note(item.endpointId, answer)
    if (wasAccepted) this.#settlements.complete(item, sent?.change ?? null)
    else this.#settlements.postpone(item, answer, item.attempts, tookMs)
    if (answer.status === 410) {
      void this.#connection
        .pipelineIdempotent([{ statement: pauseEndpoint, values: [item.endpointId] }])
        .catch(() => undefined)
    }
  }
}
