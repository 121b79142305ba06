/**
 * Sends deliveries to endpoints. The life of a delivery in this process:
 *
 * 1. Leased: a row of endpoint_delivery is leased by one process at a time. The process that committed it leases it first
 *    (`handOver`) and sends it within milliseconds. Later, any process that polls finds it due (`claims.ts`). The leases of a process
 *    that dies end after LEASE_MS.
 * 2. Queued: it waits in the queue of its endpoint, as an id without content. Endpoints take turns. During an outage
 *    of the endpoint, leases are returned, and one delivery at a time is tried (`queue.ts`).
 * 3. Connected: `targets.ts` finds the endpoint's URL, `post.ts` takes or opens a connection.
 * 4. Read: `contents.ts` reads the current content. Erasures of the account wait from now on.
 * 5. Written: `messages.ts` builds and signs the body, `post.ts` writes it within a second. Erasures no longer wait.
 * 6. Responded: `#noteResponse` decides by the status alone.
 * 7. Settled: `settlements.ts` deletes the row, postpones its next attempt, or returns the lease.
 */
import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { type SecretKeys, UnreadableSecret } from '../config/secret-keys.ts'
import type { HandOver, LeasedDelivery } from '../intake/flush.ts'
import type { Repetition } from '../jobs/every.ts'
import { endpointResponded } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { RefusedUrl } from './address.ts'
import { pauseEndpoint } from './backlog.ts'
import { followFeeds } from './changes.ts'
import { Claims, LEASE_MS } from './claims.ts'
import { Contents } from './contents.ts'
import { openMessage, type ReadContent } from './messages.ts'
import { type EndpointResponse, isAccepted, notSent, outcomeOf, post, UNREADABLE_SECRET } from './post.ts'
import { Queue, type Started } from './queue.ts'
import { HostResolver } from './resolver.ts'
import { RESPONSE_TEXT_MAX_BYTES, SeenResponse, storedText } from './response.ts'
import { type AttemptResult, Settlements } from './settlements.ts'
import { Targets } from './targets.ts'

/** An attempt must begin early enough to end within the lease. */
const LATEST_START_MS = LEASE_MS - 12_000
const POLL_MS = 300
/**
 * Attempts that start in one turn of the event loop: 8 × 0.5 ms = 4 ms at most. With 4, batches of statements are so small that a
 * delivery takes 16 % more processor time. More than 8 makes no difference.
 */
const STARTS_PER_TURN = 8
/** A shutdown waits this long for requests in flight. Unfinished deliveries are sent again. */
const STOP_MAX_MS = 4_000

interface Item extends LeasedDelivery {
  leasedAtMs: number
  /** Including the next one. */
  attempts: number
  committedAtMs: number
}

interface Ended extends Pick<AttemptResult, 'response' | 'text' | 'startedAtMs'> {
  read: ReadContent
}

export class Sender {
  readonly #secretKeys: SecretKeys
  readonly #connection: PinnedConnection
  readonly #queue = new Queue<Item>()
  readonly #claims: Claims
  readonly #database: Database
  readonly #contents: Contents
  readonly #settlements: Settlements
  readonly #targets: Targets
  #feeds: Repetition | null = null
  #timer: NodeJS.Timeout | undefined
  #polling: Promise<void> | null = null
  #isStopped = true
  #hasStartedInTurn = false
  #mayStartMore = false

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(database: Database, isOwnUrl: (url: URL) => boolean, resolver = new HostResolver()) {
    this.#secretKeys = database.secretKeys
    this.#connection = database.pin()
    this.#claims = new Claims(this.#connection, this.#queue)
    this.#database = database
    this.#settlements = new Settlements(this.#connection)
    this.#contents = new Contents(this.#connection)
    this.#targets = new Targets(this.#connection, { isOwnUrl, resolver })
  }

  start(): void {
    this.#isStopped = false
    this.#timer = setInterval(() => this.#poll(), POLL_MS)
    this.#feeds = followFeeds(this.#database, (endpointIds) => this.expect(endpointIds))
  }

  /** Stops polling, returns leases of deliveries that have not begun, and waits up to STOP_MAX_MS for requests in flight. */
  async stop(): Promise<void> {
    clearInterval(this.#timer)
    this.#isStopped = true
    await Promise.all([this.#feeds?.stop(), this.#polling])
    for (const item of this.#queue.clear()) this.#settlements.release(item)
    const deadlineMs = performance.now() + STOP_MAX_MS
    while (this.#queue.inFlight > 0 && performance.now() < deadlineMs) await sleep(20)
    await this.#settlements.settle()
  }

  /** Sends deliveries that a flush of this process has committed and leased. */
  readonly handOver: HandOver = (deliveries) => {
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

  /** Call it when deliveries to these endpoints have been queued. Without it, the next polls find them. */
  expect(endpointIds: bigint[]): void {
    for (const id of endpointIds) if (!this.#queue.stateOf(id).isDown) this.#claims.expect(id)
    this.#poll()
  }

  #poll(): void {
    if (this.#isStopped) return
    this.#polling ??= this.#claim()
      // The database is down. The next poll tries again.
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

  /** Starts at most one burst per turn of the event loop, because incoming requests wait for it. */
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
      // A fault of the database does not count as a failure of the endpoint.
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
    const read: ReadContent = { change: null, isCurrent: false, events: null, waitedMs: 0 }
    const attempt = { endpoint: row, delivery: item, isProven }
    const open = () => openMessage(this.#secretKeys, this.#contents, attempt, read)
    const startedAtMs = performance.now()
    const seen = new SeenResponse(RESPONSE_TEXT_MAX_BYTES)
    const watch = (received: IncomingMessage) => {
      if (!isAccepted({ status: received.statusCode ?? null })) seen.watch(received)
    }
    const response =
      target instanceof RefusedUrl
        ? notSent(target.message)
        : await post({ ...target, watch }, open).catch(unreadableResponse)
    if (response !== null) {
      const hasText = !(target instanceof RefusedUrl || isAccepted(response))
      const text = hasText ? storedText(seen.body, target.url) : null
      this.#noteResponse(started, { response, text, read, startedAtMs })
    } else if (read.isCurrent) this.#settlements.complete(item, read.change)
    else {
      this.#targets.forget(item.endpointId)
      this.#settlements.release(item)
    }
  }

  #noteResponse({ state, item }: Started<Item>, { response, text, read, startedAtMs }: Ended): void {
    const nowMs = performance.now()
    const durationMs = nowMs - startedAtMs - read.waitedMs
    const wasAccepted = isAccepted(response)
    const hasRecovered = state.note(wasAccepted, durationMs, nowMs)
    if (hasRecovered) this.#claims.expect(item.endpointId)
    // They are tried by other processes or later.
    if (state.isDown) for (const waiting of state.waiting.splice(0)) this.#settlements.release(waiting)
    endpointResponded.publish({ outcome: outcomeOf(response), sinceCommitMs: nowMs - item.committedAtMs })
    const attempt = { delivery: item, attempt: item.attempts, events: read.events }
    this.#settlements.note({ ...attempt, response, text, startedAtMs, durationMs }, read.change)
    if (response.status === 410) {
      void this.#connection
        .pipelineIdempotent([{ statement: pauseEndpoint, values: [item.endpointId] }])
        .catch(() => undefined)
    }
  }
}

/** The delivery is tried again later, because an operator can add the key. Until then, each attempt fails. */
function unreadableResponse(error: unknown): EndpointResponse {
  if (!(error instanceof UnreadableSecret)) throw error
  return notSent(UNREADABLE_SECRET)
}
