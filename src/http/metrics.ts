/** Prometheus metrics, on a listener of their own: they are for the operator's network, not for callers. */
import { createServer, type Server } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { FatalError } from '../errors.ts'
import { UNKNOWN_ROUTE } from './answers.ts'

const SECONDS_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

const BACKLOG_INTERVAL_MS = 60_000

const EVENTS_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
/** Events come within a second, or hours late when they were sent again. */
const LAG_BUCKETS = [0.5, 1, 2, 5, 10, 60, 600, 3600, 86_400]

const SOURCES = ['line', 'mbox', 'tracking']
const OUTCOMES = ['accepted', 'duplicate', 'unapplied']
const PROFILE_OUTCOMES = ['found', 'unknown', 'fault'] as const
export type ProfileOutcome = (typeof PROFILE_OUTCOMES)[number]

export type VerificationOutcome = 'verified' | 'refused' | 'unavailable'

interface ObservedEvent {
  source: string
  occurredAtMs: number
}

/** What can be seen of a running service. No label holds an address, an id or a person. */
export class Metrics {
  readonly registry = new Registry()
  readonly #registers = [this.registry]
  readonly #events = new Counter({
    name: 'oa_audience_events_total',
    help: 'Events on disk, by source and outcome: accepted, duplicate, or kept unapplied (of those accepted)',
    labelNames: ['source', 'outcome'] as const,
    registers: this.#registers,
  })
  readonly #lag = new Histogram({
    name: 'oa_audience_event_lag_seconds',
    help: 'Time from when an event happened until it was on disk',
    labelNames: ['source'] as const,
    buckets: LAG_BUCKETS,
    registers: this.#registers,
  })
  readonly #flushEvents = new Histogram({
    name: 'oa_audience_flush_events',
    help: 'Events committed together',
    buckets: EVENTS_BUCKETS,
    registers: this.#registers,
  })
  readonly #flushSeconds = new Histogram({
    name: 'oa_audience_flush_seconds',
    help: 'Time of a flush, from its sending to its commit',
    buckets: SECONDS_BUCKETS,
    registers: this.#registers,
  })
  readonly #queue = new Gauge({
    name: 'oa_audience_queue_events',
    help: 'Events that wait for a flush; beyond 20,000 senders are told to come back',
    registers: this.#registers,
  })
  readonly #verifications = new Counter({
    name: 'oa_audience_verifications_total',
    help: 'Verifications by outcome: verified, refused, or unavailable',
    labelNames: ['outcome'] as const,
    registers: this.#registers,
  })
  readonly #profiles = new Counter({
    name: 'oa_audience_profiles_total',
    help: 'Profiles asked for, by outcome: found, unknown, or fault (the account rests)',
    labelNames: ['outcome'] as const,
    registers: this.#registers,
  })

  constructor() {
    collectDefaultMetrics({ register: this.registry })
    // A series that first appears with 1 has not increased, as Prometheus sees it: the alert would miss the first one.
    for (const source of SOURCES) for (const outcome of OUTCOMES) this.#events.inc({ source, outcome }, 0)
    for (const outcome of PROFILE_OUTCOMES) this.#profiles.inc({ outcome }, 0)
  }

  /** Counts every answer of the app by route pattern and status, those to requests too broken for a route, too. */
  measureRequests(app: FastifyInstance): void {
    const requests = new Counter({
      name: 'oa_audience_requests_total',
      help: 'Requests answered; those refused by the rate limit have status 429, those whose sender hung up before 499',
      labelNames: ['method', 'route', 'status'] as const,
      registers: this.#registers,
    })
    const seconds = new Histogram({
      name: 'oa_audience_request_seconds',
      help: 'Time from the first byte of a request to its answer',
      labelNames: ['method', 'route'] as const,
      buckets: SECONDS_BUCKETS,
      registers: this.#registers,
    })
    app.answerObservers.push(({ request, route, status, seconds: elapsed }) => {
      // Any token can be a method: unknown ones share a label, so that callers cannot make new ones.
      const method = request === null || route === UNKNOWN_ROUTE ? 'any' : request.method
      requests.inc({ method, route, status })
      if (elapsed !== null) seconds.observe({ method, route }, elapsed)
    })
  }

  /** Sessions of the pool, asked for when the metrics are. */
  watchPool(state: () => { total: number; idle: number; waiting: number }): void {
    new Gauge({
      name: 'oa_audience_database_sessions',
      help: 'Database sessions of the pool (total, idle), and requests that wait for one',
      labelNames: ['state'] as const,
      registers: this.#registers,
      collect() {
        for (const [name, count] of Object.entries(state())) this.set({ state: name }, count)
      },
    })
  }

  /** Counts members whose profile is due, now and then: it may take seconds, which nobody who asks for metrics would wait. */
  watchProfileBacklog(count: () => Promise<number>): void {
    const due = new Gauge({
      name: 'oa_audience_profiles_due',
      help: 'Members who wait for their profile to be asked for; at most 10,000 of each account are counted',
      registers: this.#registers,
    })
    const look = () =>
      count().then(
        (members) => due.set(members),
        // Rather no figure than a wrong one.
        () => due.remove(),
      )
    void look()
    setInterval(look, BACKLOG_INTERVAL_MS).unref()
  }

  received(
    events: ObservedEvent[],
    { accepted, duplicates }: { accepted: number; duplicates: number },
    unapplied: number,
  ): void {
    const source = events[0]?.source ?? 'unknown'
    if (accepted > 0) this.#events.inc({ source, outcome: 'accepted' }, accepted)
    if (duplicates > 0) this.#events.inc({ source, outcome: 'duplicate' }, duplicates)
    if (unapplied > 0) this.#events.inc({ source, outcome: 'unapplied' }, unapplied)
    const now = Date.now()
    for (const { occurredAtMs } of events)
      this.#lag.observe({ source }, Math.max(0, now - occurredAtMs) / 1000)
  }

  flushed(events: number, seconds: number): void {
    this.#flushEvents.observe(events)
    this.#flushSeconds.observe(seconds)
  }

  queued(events: number): void {
    this.#queue.set(events)
  }

  verified(outcome: VerificationOutcome): void {
    this.#verifications.inc({ outcome })
  }

  profileAsked(outcome: ProfileOutcome): void {
    this.#profiles.inc({ outcome })
  }
}

/** Serves the metrics at /metrics. Throws a FatalError if the port is taken. */
export function serveMetrics({ registry }: Metrics, host: string, port: number): Promise<Server> {
  const server = createServer(async (request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end()
      return
    }
    const text = await registry.metrics()
    response.writeHead(200, { 'content-type': registry.contentType }).end(text)
  })
  return new Promise((resolve, reject) => {
    server.once('error', (error: Error & { code?: string }) =>
      reject(
        new FatalError(`METRICS_PORT ${port} on ${host} cannot be used (${error.code}): set another one`),
      ),
    )
    server.listen(port, host, () => resolve(server))
  })
}
