/**
 * Sends deliveries to endpoints. The life of a delivery in this process:
 *
 * 1. Leased: a row of endpoint_delivery is leased by one process at a time. The process that committed it leases it first
 *    (`handOver`) and sends it within milliseconds. Later, any process that polls finds it due (`claims.ts`). The leases of a process
 *    that dies end after LEASE_MS.
 * 2. Queued: it waits in the queue of its endpoint, as an id without content. Endpoints take turns. During an outage
 *    of the endpoint, leases are returned, and one delivery at a time is tried (`queue.ts`).
 * 3. Connected: `address.ts` checks the endpoint's URL, `post.ts` takes or opens a connection.
 * 4. Read: `contents.ts` reads the current content. Erasures of the account wait from now on.
 * 5. Sent: `messages.ts` builds and signs the body, `post.ts` writes it within a second. Erasures no longer wait. Then it reads the
 *    response.
 * 6. Settled: the status alone decides. `settlements.ts` deletes the row, postpones its next attempt, or returns the lease.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { type SecretKeys, UnreadableSecret } from '../config/secret-keys.ts'
import { every, type Repetition } from '../every.ts'
import type { HandOver, LeasedDelivery } from '../intake/flush.ts'
import { endpointResponded } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import { BACKLOG_LOCK } from '../postgres/locks.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { type Row, statement } from '../postgres/statement.ts'
import { type AddressChecks, checkAddress, type EndpointAddress, RefusedUrl, type Route } from './address.ts'
import { followFeeds } from './changes.ts'
import { Claims, LEASE_MS } from './claims.ts'
import { type ContentRow, Contents } from './contents.ts'
import { pauseGone } from './manage.ts'
import { MissingSecret, writeMessage } from './messages.ts'
import {
  Connection,
  connect,
  type Ending,
  type EndpointResponse,
  isDown,
  type Message,
  notSent,
  outcomeOf,
  REQUEST_TIMEOUT_MS,
  STALE,
  UNREADABLE_SECRET,
} from './post.ts'
import { Queue, type Started } from './queue.ts'
import { HostResolver } from './resolver.ts'
import { RESPONSE_TEXT_MAX_BYTES, SeenResponse, storedText } from './response.ts'
import { type AttemptEnd, Settlements, type Tried } from './settlements.ts'

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
const ENDPOINTS_MAX = 10_000
/** A connection may be opened to an outdated URL, but the endpoint is read again before anything is sent. */
const ENDPOINT_MAX_AGE_MS = 60_000

interface Endpoint extends Row, EndpointAddress {
  status: string
}

const loadEndpoint = statement('load-endpoint')`
    select status, url, allow_private_network from endpoint where id = $1`

interface Item extends LeasedDelivery {
  leasedAtMs: number
  committedAtMs: number
}

/** The session keeps the lock. If its machine dies, PostgreSQL notices half a minute later. $1 bigint: number of the lock */
const elect = statement('elect-instance')`
    select pg_try_advisory_lock($1) as "isElected", set_config('tcp_keepalives_idle', '15', false) as idle,
           set_config('tcp_keepalives_interval', '5', false) as interval, set_config('tcp_keepalives_count', '3', false) as count`

/** What was read, and the response to it. */
interface Sent extends Pick<Tried, 'events' | 'change'> {
  response: Promise<Ending> | Ending
  readMs: number
}

const RELEASED: AttemptEnd = { kind: 'released' }

export class Sender {
  readonly #database: Database
  readonly #connection: PinnedConnection
  readonly #checks: AddressChecks
  readonly #queue = new Queue<Item>()
  readonly #endpoints = new LRUCache<bigint, Endpoint>({ max: ENDPOINTS_MAX, ttl: ENDPOINT_MAX_AGE_MS })
  readonly #claims: Claims
  readonly #contents: Contents
  readonly #settlements: Settlements
  #feeds: Repetition | null = null
  #poller: Repetition | null = null
  #polling: Promise<void> | null = null
  #starting: NodeJS.Immediate | null = null
  #isStopped = true

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(database: Database, isOwnUrl: (url: URL) => boolean, route: Route = new HostResolver()) {
    this.#database = database
    this.#connection = database.pin()
    this.#checks = { isOwnUrl, route }
    this.#claims = new Claims(this.#connection, this.#queue)
    this.#contents = new Contents(this.#connection)
    this.#settlements = new Settlements(this.#connection)
  }

  start(): void {
    this.#isStopped = false
    this.#poller = every('deliveries', POLL_MS, async () => this.#poll())
    this.#feeds = followFeeds(this.#database, (endpointIds) => this.expect(endpointIds))
  }

  /** Stops polling, returns leases of deliveries that have not begun, and waits up to STOP_MAX_MS for requests in flight. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await Promise.all([this.#poller?.stop(), this.#feeds?.stop(), this.#polling])
    for (const item of this.#queue.clear()) this.#settlements.add(item, RELEASED)
    const deadlineMs = performance.now() + STOP_MAX_MS
    while (this.#queue.inFlight > 0 && performance.now() < deadlineMs) await sleep(20)
    await this.#settlements.settle()
  }

  /** Sends deliveries that a flush of this process has committed and leased. */
  readonly handOver: HandOver = (deliveries) => {
    const leasedAtMs = performance.now()
    this.#enqueue(deliveries.map((delivery) => ({ ...delivery, leasedAtMs, committedAtMs: leasedAtMs })))
  }

  /** Call it when deliveries to these endpoints have been queued. Without it, the next polls find them. */
  expect(endpointIds: bigint[]): void {
    for (const id of endpointIds) this.#claims.expect(id)
    this.#poll()
  }

  /** Whether this instance is the one that exports what is the same in all of them. */
  async isElected(): Promise<boolean> {
    const values = [BACKLOG_LOCK]
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: elect, values }])
    return rows?.[0]?.isElected === true
  }

  #poll(): void {
    if (this.#isStopped) return
    this.#polling ??= this.#claims
      .claim()
      .then((rows) => {
        const leasedAtMs = performance.now()
        this.#enqueue(
          rows.map(({ id, channel_oa_id: accountId, endpoint_id: endpointId, attempts, age_ms }) => ({
            ...{ id, accountId, endpointId, attempts, leasedAtMs, committedAtMs: leasedAtMs - age_ms },
          })),
        )
      })
      // The database is down. The next poll tries again.
      .catch(() => undefined)
      .finally(() => {
        this.#polling = null
      })
  }

  #enqueue(items: Item[]): void {
    const nowMs = performance.now()
    for (const item of items) {
      if (!this.#isStopped && this.#queue.add(item, nowMs)) continue
      this.#settlements.add(item, RELEASED)
      this.#claims.expect(item.endpointId)
    }
    this.#startSoon()
  }

  /** Starts a few attempts per turn of the event loop, because incoming requests wait for it. */
  #startSoon(): void {
    this.#starting ??= setImmediate(() => {
      this.#starting = null
      for (let count = 0; count < STARTS_PER_TURN; count += 1) {
        const next = this.#queue.start()
        if (next === null) return
        void this.#run(next)
      }
      this.#startSoon()
    })
  }

  async #run(started: Started<Item>): Promise<void> {
    const { item } = started
    // A fault of the database does not count as a failure of the endpoint.
    const end = await this.#attempt(started).catch(() => RELEASED)
    if (end.kind === 'tried') this.#settle(started, end)
    else this.#settlements.add(item, end)
    this.#queue.end(started)
    this.#startSoon()
    if (this.#claims.isRunningOut(item.endpointId)) this.#poll()
  }

  async #attempt(started: Started<Item>): Promise<AttemptEnd> {
    const { item } = started
    const endpoint = await this.#endpointOf(item.endpointId)
    // A flush that began before the endpoint was removed has written the delivery.
    if (endpoint === undefined) return { kind: 'completed', change: null }
    const startedAtMs = performance.now()
    if (endpoint.status !== 'active' || startedAtMs - item.leasedAtMs > LATEST_START_MS) return RELEASED
    const deadlineMs = startedAtMs + REQUEST_TIMEOUT_MS
    const address = checkAddress(item.accountId, endpoint, this.#checks)
    if (address instanceof RefusedUrl) this.#endpoints.delete(item.endpointId)
    for (let readMs = 0; ; ) {
      const seen = new SeenResponse(RESPONSE_TEXT_MAX_BYTES, true)
      const connection = await connect(address, deadlineMs, seen)
      const sent =
        connection instanceof Connection
          ? await this.#send(connection, deadlineMs, started, endpoint).finally(() => connection.end())
          : { response: connection, events: null, change: null, readMs: 0 }
      if ('kind' in sent) return sent
      const { events, change } = sent
      const response = await sent.response
      readMs += sent.readMs
      // Other idle connections may be closed, too, so this is a loop.
      if (response === STALE) continue
      const durationMs = performance.now() - startedAtMs - readMs
      const text = address instanceof RefusedUrl ? null : storedText(seen.body, address.url)
      return { kind: 'tried', response, text, startedAtMs, durationMs, events, change }
    }
  }

  /** Reads the content and begins to send it. Nothing refers to the content while its response is awaited. */
  async #send(
    connection: Connection,
    deadlineMs: number,
    { item, isProven }: Started<Item>,
    endpoint: Endpoint,
  ): Promise<AttemptEnd | Sent> {
    const startedAtMs = performance.now()
    const stop = () => connection.abort('the database was lost while the request was written')
    const content = await this.#contents.read(item, isProven, deadlineMs, stop)
    const readMs = performance.now() - startedAtMs
    const isLate = performance.now() > deadlineMs
    if (content === undefined || isLate || !isAsRead(endpoint, content.row)) {
      content?.release()
      this.#endpoints.delete(item.endpointId)
      return RELEASED
    }
    const { row, release } = content
    let message: Message | EndpointResponse | null = null
    try {
      message = messageOf(this.#database.secretKeys, row)
    } finally {
      // Otherwise, erasures would wait until the session ends.
      if (message === null || 'status' in message) release()
    }
    if (message === null) return { kind: 'completed', change: row.change }
    const response = 'status' in message ? message : connection.send(message, release)
    return { response, events: row.event_count ?? 1, change: row.change, readMs }
  }

  async #endpointOf(id: bigint): Promise<Endpoint | undefined> {
    const cached = this.#endpoints.get(id)
    if (cached !== undefined) return cached
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: loadEndpoint, values: [id] }])
    const [endpoint] = rows as Endpoint[]
    if (endpoint?.status === 'active') this.#endpoints.set(id, endpoint)
    return endpoint
  }

  #settle({ state, item }: Started<Item>, end: Tried): void {
    const { response, durationMs } = end
    const nowMs = performance.now()
    const hasRecovered = state.note(!isDown(response), durationMs, nowMs)
    // They are tried by other processes or later.
    if (state.isDown) for (const waiting of state.waiting.splice(0)) this.#settlements.add(waiting, RELEASED)
    endpointResponded.publish({ outcome: outcomeOf(response), sinceCommitMs: nowMs - item.committedAtMs })
    this.#settlements.add(item, end, hasRecovered)
    if (hasRecovered) this.#claims.expect(item.endpointId)
    if (response.status === 410)
      this.#connection
        .pipelineIdempotent([{ statement: pauseGone, values: [item.endpointId] }])
        .catch(() => undefined)
  }
}

/** Whether the endpoint is still the one to which the connection was opened. */
const isAsRead = (endpoint: Endpoint, row: ContentRow): boolean =>
  row.status === 'active' &&
  row.url === endpoint.url &&
  row.allow_private_network === endpoint.allow_private_network

/**
 * Returns null if there is nothing to send, and a result without a status if it cannot be signed. It is tried again later, because an
 * operator can add the secret or its key.
 */
function messageOf(keys: SecretKeys, row: ContentRow): Message | EndpointResponse | null {
  try {
    return writeMessage(keys, row, Date.now())
  } catch (error) {
    if (error instanceof UnreadableSecret) return notSent(UNREADABLE_SECRET)
    if (error instanceof MissingSecret) return notSent(error.message)
    throw error
  }
}
