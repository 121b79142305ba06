/** The metrics of the service, and their page. */
import type { FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { every } from '../every.ts'
import {
  countOutcomes,
  databaseGauges,
  measureClock,
  type NotificationCounts,
  notificationGauges,
  type WatchedDatabase,
} from './database-metrics.ts'
import { deliveryStored, eventsRejected, flushed, queueChanged, UNKNOWN_ROUTE } from './facts.ts'
import {
  type AccountProblems,
  accountProblemGauge,
  countEndpointAttempts,
  type EndpointBacklog,
  endpointBacklogGauges,
} from './stored-metrics.ts'

const SECONDS_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
const EVENTS_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
const LAG_BUCKETS = [0.5, 1, 2, 5, 10, 60, 600, 3600, 86_400]

/** Counts are not read with each scrape, because counting a large backlog may take longer than a scrape waits. */
const COUNT_INTERVAL_MS = 60_000
/** Gauges of alerts are read more often. */
const ALERT_INTERVAL_MS = 15_000

const EVENT_OUTCOMES = ['accepted', 'duplicate', 'unapplied', 'rejected']

/**
 * The metrics of a running service. With WEB_CONCURRENCY, the page adds up the figures of all processes. A gauge that has the same
 * value in each process sets another `aggregator`. No label contains an IP address or a person. Names of accounts and endpoints
 * appear only in labels of the metrics `…_info`.
 */
export class Metrics {
  readonly registry = new Registry()
  readonly #registers = [this.registry]
  readonly #unsubscribe: Array<() => void> = []

  /** @param sources the names of the event sources, so that each series exists from the start */
  constructor(sources: string[]) {
    collectDefaultMetrics({ register: this.registry })
    this.#countEvents(sources)
    this.#measureFlushes()
    this.#unsubscribe.push(
      ...countOutcomes(this.registry),
      countEndpointAttempts(this.registry),
      measureClock(this.registry),
    )
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  #countEvents(sources: string[]): void {
    const events = new Counter({
      name: 'oa_audience_events_total',
      help: 'Events by source and outcome: accepted, duplicate, unapplied (a part of the accepted ones), or rejected (not stored)',
      labelNames: ['source', 'outcome'] as const,
      registers: this.#registers,
    })
    const lag = new Histogram({
      name: 'oa_audience_event_lag_seconds',
      help: 'Time from the occurrence of an event until it was on disk',
      labelNames: ['source'] as const,
      buckets: LAG_BUCKETS,
      registers: this.#registers,
    })
    // Prometheus sees no increase in a series that first appears with 1, so an alert would miss the first event.
    for (const source of sources) for (const outcome of EVENT_OUTCOMES) events.inc({ source, outcome }, 0)
    this.#unsubscribe.push(
      eventsRejected.subscribe(({ source, events: rejected }) =>
        events.inc({ source, outcome: 'rejected' }, rejected),
      ),
      deliveryStored.subscribe(({ source, events: stored, accepted, duplicates, unapplied }) => {
        if (accepted > 0) events.inc({ source, outcome: 'accepted' }, accepted)
        if (duplicates > 0) events.inc({ source, outcome: 'duplicate' }, duplicates)
        if (unapplied > 0) events.inc({ source, outcome: 'unapplied' }, unapplied)
        const now = Date.now()
        for (const { occurredAtMs } of stored) lag.observe({ source }, Math.max(0, now - occurredAtMs) / 1000)
      }),
    )
  }

  #measureFlushes(): void {
    const size = new Histogram({
      name: 'oa_audience_flush_events',
      help: 'Events committed in one transaction',
      buckets: EVENTS_BUCKETS,
      registers: this.#registers,
    })
    const seconds = new Histogram({
      name: 'oa_audience_flush_seconds',
      help: 'Time from sending a flush to its commit',
      buckets: SECONDS_BUCKETS,
      registers: this.#registers,
    })
    const queue = new Gauge({
      name: 'oa_audience_queue_events',
      help: 'Events of the source that wait for a flush. A full queue (20,000, tracking 5,000) responds with 503',
      labelNames: ['source'],
      registers: this.#registers,
    })
    // prom-client hashes labels on each use, which costs 2 µs.
    const queues = new Map<string, { set: (events: number) => void }>()
    this.#unsubscribe.push(
      queueChanged.subscribe(({ source, queuedEvents }) => {
        const child = queues.get(source) ?? queue.labels({ source })
        queues.set(source, child)
        child.set(queuedEvents)
      }),
      flushed.subscribe((flush) => {
        size.observe(flush.events)
        seconds.observe(flush.seconds)
      }),
    )
  }

  measureRequests(app: FastifyInstance): void {
    const requests = new Counter({
      name: 'oa_audience_requests_total',
      help: 'Finished requests; rate-limited ones have status 429, those whose client disconnected before the response 499',
      labelNames: ['method', 'route', 'status'] as const,
      registers: this.#registers,
    })
    const seconds = new Histogram({
      name: 'oa_audience_request_seconds',
      help: 'Time from the headers of a request to its response',
      labelNames: ['method', 'route'] as const,
      buckets: SECONDS_BUCKETS,
      registers: this.#registers,
    })
    app.requestObservers.push(({ request, route, status, seconds: elapsed }) => {
      // Any token can be a method. Unknown ones share a label, so that callers cannot create series.
      const method = request === null || route === UNKNOWN_ROUTE ? 'any' : request.method
      requests.inc({ method, route, status })
      if (elapsed !== null) seconds.observe({ method, route }, elapsed)
    })
  }

  watchDatabase(database: WatchedDatabase): void {
    databaseGauges(this.registry, database)
  }

  watchProfileBacklog(count: () => Promise<number>): void {
    const help = 'Members whose profile is due, at most 10,000 per account and 100,000 in all'
    this.#watchNumber('oa_audience_profiles_due', help, count)
  }

  /** @param read seconds since the oldest erasure that the ledger does not have; 0: none */
  watchErasureLedger(read: () => Promise<number>): void {
    const help =
      'Age of the oldest erasure that ERASURE_LEDGER does not have; 0: none. No series without ERASURE_LEDGER'
    this.#watchNumber('oa_audience_erasures_oldest_unrecorded_seconds', help, read)
  }

  watchPlainSecrets(count: () => Promise<number>): void {
    const help =
      'Rows with secrets in plain text, although SECRETS_KEYS begins with a key; otherwise no series'
    this.#watchNumber('oa_audience_plain_secret_rows', help, count)
  }

  /** An endpoint without a backlog has no series. */
  watchEndpoints(read: () => Promise<EndpointBacklog[]>): void {
    this.#show(ALERT_INTERVAL_MS, read, endpointBacklogGauges(this.registry), [])
  }

  watchNotifications(read: () => Promise<NotificationCounts[]>): void {
    this.#show(COUNT_INTERVAL_MS, read, notificationGauges(this.registry), null)
  }

  /** An account without a problem has no series. */
  watchAccounts(read: () => Promise<AccountProblems[]>): void {
    this.#show(ALERT_INTERVAL_MS, read, accountProblemGauge(this.registry), [])
  }

  #watchNumber(name: string, help: string, read: () => Promise<number>): void {
    const gauge = new Gauge({ name, help, aggregator: 'max', registers: this.#registers })
    const show = (value: number | null) => (value === null ? gauge.remove() : gauge.set(value))
    this.#show(COUNT_INTERVAL_MS, read, show, null)
  }

  #show<T>(intervalMs: number, read: () => Promise<T>, show: (value: T) => void, nothing: T): void {
    // No figure is better than an outdated one.
    const update = () => read().then(show, () => show(nothing))
    const { stop } = every('metrics', intervalMs, update)
    this.#unsubscribe.push(() => void stop())
  }
}
