/**
 * Sends deliveries to endpoints. The life of a delivery in this process:
 *
 * 1. Leased: a row of endpoint_delivery is leased by one process at a time. The process that committed it sends it within
 *    milliseconds (`handOver`). Later, a process that polls finds it due (`claims.ts`). A process that dies holds its leases for
 *    LEASE_MS at most.
 * 2. Queued: it waits in the queue of its endpoint, as an id without content. Endpoints take turns (`queue.ts`). During an outage
 *    of its endpoint it is returned, and one delivery at a time is tried (`endpoint-state.ts`).
 * 3. Connected: `targets.ts` says where the endpoint is, `post.ts` takes or opens a connection.
 * 4. Read: when the connection stands, `contents.ts` reads what is stored now. Erasures of the account wait from here on.
 * 5. Written: `messages.ts` builds and signs the body, `post.ts` writes it, within a second. Erasures wait no longer.
 * 6. Answered: `#noteAnswer` decides by the status alone.
 * 7. Settled: `settlements.ts` deletes the row, moves its next attempt, or returns the lease.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { HandOver, LeasedDelivery } from '../intake/flush.ts'
import { endpointAnswered } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { RefusedUrl } from './address.ts'
import { Attempt } from './attempt.ts'
import { pauseEndpoint } from './backlog.ts'
import { Feeds } from './changes.ts'
import { Claims, LEASE_MS } from './claims.ts'
import { Contents } from './contents.ts'
import { FanOut } from './fan-out.ts'
import { type Answer, isAccepted, post } from './post.ts'
import { Queue, type Started } from './queue.ts'
import { HostResolver } from './resolver.ts'
import { Settlements } from './settlements.ts'
import { Targets } from './targets.ts'

/** An attempt must begin early enough to end within the lease. */
const LATEST_START_MS = LEASE_MS - 12_000
const POLL_MS = 300
/**
 * Attempts that start in one turn of the event loop. Each takes 0.2 to 0.5 ms of it until its response, so a turn takes some 4 ms.
 * With 4, batches of statements get so small that a delivery takes 16 % more processor time. With 8 and more, there is no difference.
 */
const STARTS_PER_TURN = 8
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
  readonly #queue = new Queue<Item>()
  readonly #claims: Claims
  readonly #feeds: Feeds
  readonly #fanOut: FanOut
  readonly #contents: Contents
  readonly #settlements: Settlements
  readonly #targets: Targets
  #timer: NodeJS.Timeout | undefined
  #polling: Promise<void> | null = null
  #isStopped = true
  #hasStartedInTurn = false
  #mayStartMore = false

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(database: Database, isOwnUrl: (url: URL) => boolean, resolver = new HostResolver()) {
    this.#connection = database.pin()
    this.#claims = new Claims(this.#connection, this.#queue)
    this.#feeds = new Feeds(database, (endpointIds) => this.#expect(endpointIds))
    this.#fanOut = new FanOut(database, (endpointIds) => this.#expect(endpointIds))
    this.#settlements = new Settlements(this.#connection)
    this.#contents = new Contents(this.#connection)
    this.#targets = new Targets(this.#connection, isOwnUrl, resolver)
  }

  start(): void {
    this.#isStopped = false
    this.#timer = setInterval(() => this.#poll(), POLL_MS)
    this.#feeds.start()
    this.#fanOut.start()
  }

  /** Ends polling, returns what was leased and not begun, and waits a while for requests in flight. */
  async stop(): Promise<void> {
    clearInterval(this.#timer)
    this.#isStopped = true
    await Promise.all([this.#feeds.stop(), this.#fanOut.stop(), this.#polling])
    for (const item of this.#queue.clear()) this.#settlements.release(item)
    const deadlineMs = performance.now() + STOP_MAX_MS
    while (this.#queue.inFlight > 0 && performance.now() < deadlineMs) await sleep(20)
    await this.#settlements.settle()
  }

  /** Sends what a flush of this process has just committed and leased. */
  readonly handOver: HandOver = (deliveries, fansOut) => {
    if (fansOut) this.#fanOut.wake()
    const leasedAtMs = performance.now()
    for (const delivery of deliveries) {
      this.#enqueue({ ...delivery, leasedAtMs, attempts: 1, committedAtMs: leasedAtMs })
    }
    this.#startNext()
  }

  #enqueue(item: Item): void {
    if (!this.#isStopped && this.#queue.add(item, performance.now())) return
    this.#settlements.release(item)
    if (!this.#queue.stateOf(item.endpointId).isDown) this.#claims.expect(item.endpointId)
  }

  #expect(endpointIds: bigint[]): void {
    for (const id of endpointIds) if (!this.#queue.stateOf(id).isDown) this.#claims.expect(id)
    this.#poll()
  }

  #poll(): void {
    if (this.#isStopped) return
    this.#polling ??= this.#claim()
      // While the database is down nothing can be sent. The next poll tries again.
      .catch(() => undefined)
      .finally(() => {
        this.#polling = null
      })
  }

  async #claim(): Promise<void> {
    const rows = await this.#claims.claim()
    const leasedAtMs = performance.now()
    for (const { id, channel_oa_id: accountId, endpoint_id: endpointId, attempts, age_ms } of rows) {
      this.#enqueue({ id, accountId, endpointId, leasedAtMs, attempts, committedAtMs: leasedAtMs - age_ms })
    }
    this.#startNext()
  }

  /** Starts at most one burst per turn of the event loop: requests of LINE wait for a burst, and not for all that may start. */
  #startNext(): void {
    this.#mayStartMore = true
    if (this.#hasStartedInTurn) return
    this.#hasStartedInTurn = true
    this.#mayStartMore = this.#startBurst()
    setImmediate(() => {
      this.#hasStartedInTurn = false
      if (this.#mayStartMore) this.#startNext()
    })
  }

  /** Returns whether more may be able to start. */
  #startBurst(): boolean {
    for (let started = 0; started < STARTS_PER_TURN; started += 1) {
      const next = this.#queue.start()
      if (next === null) return false
      void this.#attempt(next)
    }
    return true
  }

  async #attempt(started: Started<Item>): Promise<void> {
    const { item } = started
    try {
      if (performance.now() - item.leasedAtMs > LATEST_START_MS) this.#settlements.release(item)
      else await this.#send(started)
    } catch {
      // A fault of our own database says nothing about the endpoint.
      this.#settlements.release(item)
    } finally {
      this.#queue.end(started)
      this.#startNext()
      if (this.#claims.isRunningOut(item.endpointId)) this.#poll()
    }
  }

  async #send(started: Started<Item>): Promise<void> {
    const { item, isProven } = started
    const endpoint = await this.#targets.find(item.endpointId)
    // A trigger deletes the deliveries of an endpoint that was removed.
    if (endpoint === undefined) return
    const { row, target } = endpoint
    if (row.status !== 'active') return this.#settlements.release(item)
    const attempt = new Attempt(this.#contents, row, item, isProven)
    const startedAtMs = performance.now()
    const answer =
      target instanceof RefusedUrl
        ? { status: null, reason: target.message, retryAfterMs: null }
        : await post(target, attempt.open)
    if (answer !== null) this.#noteAnswer(started, answer, attempt, performance.now() - startedAtMs)
    else if (attempt.isCurrent) this.#settlements.complete(item, attempt.change)
    else {
      this.#targets.forget(item.endpointId)
      this.#settlements.release(item)
    }
  }

  #noteAnswer({ state, item }: Started<Item>, answer: Answer, attempt: Attempt, tookMs: number): void {
    const nowMs = performance.now()
    const wasAccepted = isAccepted(answer)
    const hasRecovered = state.note(wasAccepted, tookMs - attempt.waitedMs, nowMs)
    if (hasRecovered) this.#claims.expect(item.endpointId)
    // Other processes and later probes find them.
    if (state.isDown) for (const waiting of state.waiting.splice(0)) this.#settlements.release(waiting)
    const outcome = wasAccepted ? 'accepted' : answer.status === null ? 'no_response' : 'rejected'
    endpointAnswered.publish({ outcome, sinceCommitMs: nowMs - item.committedAtMs })
    this.#settlements.note(item.endpointId, answer)
    if (wasAccepted) this.#settlements.complete(item, attempt.change)
    else this.#settlements.postpone(item, answer, item.attempts, tookMs)
    if (answer.status === 410) {
      void this.#connection
        .pipelineIdempotent([{ statement: pauseEndpoint, values: [item.endpointId] }])
        .catch(() => undefined)
    }
  }
}
