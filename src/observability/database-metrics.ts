/** Outcomes of facts, the state of the database with the connections to it, and the numbers of notifications. */
import { Counter, Gauge, type Registry } from 'prom-client'
import {
  accountVerified,
  clockCompared,
  databaseBusy,
  heartbeatSent,
  idTokenVerified,
  notificationResponded,
  type Occurrence,
  profileRequested,
  READ_OUTCOMES,
  readServed,
} from './facts.ts'

const DATABASE_STATES = ['up', 'read-only', 'failing', 'down']
const REPLICATION_STATES = ['synchronous', 'asynchronous', 'behind', 'missing', 'unknown']

export interface WatchedDatabase {
  connectionStates(): Array<{ pool: string; total: number; idle: number; waiting: number }>
  state(): Promise<string>
  readonly replication: string | null
  replicaLags(): Promise<Array<{ replica: string; behindBytes: number | null }>>
}

const FORMATS = ['slack', 'webhook', 'email']

/** Counts facts by their outcome. Every series exists from the start. Returns functions that end the counting. */
export function countOutcomes(registry: Registry): Array<() => void> {
  const counter = <Label extends string>(name: string, help: string, ...labelNames: Label[]) =>
    new Counter({ name, help, labelNames, registers: [registry] })
  const count = <Outcome extends string>(
    fact: Occurrence<{ outcome: Outcome }>,
    outcomes: readonly Outcome[],
    name: string,
    help: string,
  ) => {
    const counted = counter(name, help, 'outcome')
    for (const outcome of outcomes) counted.inc({ outcome }, 0)
    return fact.subscribe((facts) => counted.inc(facts))
  }
  const busy = counter(
    'oa_audience_database_busy_total',
    'Requests refused after waiting for a connection: because of their own account (429), or of the whole pool (503)',
    ...(['pool', 'reason'] as const),
  )
  busy.inc({ pool: 'clients', reason: 'account' }, 0)
  for (const pool of ['clients', 'intake']) busy.inc({ pool, reason: 'pool' }, 0)
  const notified = counter(
    'oa_audience_notification_attempts_total',
    'Attempts to send a notification by format and outcome: accepted, rejected, or no_response',
    ...(['format', 'outcome'] as const),
  )
  for (const format of FORMATS)
    for (const outcome of ['accepted', 'rejected', 'no_response']) notified.inc({ format, outcome }, 0)
  return [
    databaseBusy.subscribe((facts) => busy.inc(facts)),
    notificationResponded.subscribe((facts) => notified.inc(facts)),
    count(
      readServed,
      READ_OUTCOMES,
      'oa_audience_reads_total',
      'Reads that a replica may serve, by outcome: replica, or the primary served them because every replica was behind or unavailable',
    ),
    count(
      accountVerified,
      ['verified', 'refused', 'unavailable'],
      'oa_audience_verifications_total',
      'Verifications of accounts by outcome: verified, refused, or unavailable',
    ),
    count(
      profileRequested,
      ['found', 'unknown', 'fault'],
      'oa_audience_profiles_total',
      'Requested profiles by outcome: found, unknown, or fault (the account backs off)',
    ),
    count(
      idTokenVerified,
      ['valid', 'invalid', 'unavailable'],
      'oa_audience_id_tokens_total',
      'ID tokens of tracking requests by outcome: valid, invalid, or unavailable (LINE did not deliver its keys)',
    ),
    count(
      heartbeatSent,
      ['accepted', 'failed'],
      'oa_audience_heartbeats_total',
      'Requests to HEARTBEAT_URL by outcome: accepted, or failed',
    ),
  ]
}

export function measureClock(registry: Registry): () => void {
  const skew = new Gauge({
    name: 'oa_audience_database_clock_skew_seconds',
    aggregator: 'average',
    help: "Seconds that the database's clock is ahead of this machine's, negative if it is behind; read every 10 s",
    registers: [registry],
  })
  return clockCompared.subscribe(({ skewSeconds }) => skew.set(skewSeconds))
}

export function databaseGauges(registry: Registry, database: WatchedDatabase): void {
  new Gauge({
    name: 'oa_audience_database_sessions',
    help: 'Connections of each pool (total, idle), and requests that wait for one',
    labelNames: ['pool', 'state'] as const,
    registers: [registry],
    collect() {
      for (const { pool, ...counts } of database.connectionStates())
        for (const [state, count] of Object.entries(counts)) this.set({ pool, state }, count)
    },
  })
  new Gauge({
    name: 'oa_audience_database_state',
    aggregator: 'max',
    help: 'The state of the database is 1, all others are 0: up, read-only (no delivery can be stored), failing (the last delivery could not be stored), or down',
    labelNames: ['state'] as const,
    registers: [registry],
    async collect() {
      const current = await database.state()
      for (const state of DATABASE_STATES) this.set({ state }, state === current ? 1 : 0)
    },
  })
  new Gauge({
    name: 'oa_audience_database_replication',
    aggregator: 'max',
    help: 'The state of the standbys is 1, all others are 0: synchronous, asynchronous, behind, missing or unknown; all 0 if none is expected',
    labelNames: ['state'] as const,
    registers: [registry],
    collect() {
      for (const state of REPLICATION_STATES) this.set({ state }, state === database.replication ? 1 : 0)
    },
  })
  new Gauge({
    name: 'oa_audience_replica_behind_bytes',
    aggregator: 'max',
    help: 'Bytes of WAL that each replica of DATABASE_READ_URL has not replayed; no series if it cannot be read',
    labelNames: ['replica'] as const,
    registers: [registry],
    async collect() {
      this.reset()
      for (const { replica, behindBytes } of await database.replicaLags())
        if (behindBytes !== null) this.set({ replica }, behindBytes)
    },
  })
}

export interface NotificationCounts {
  format: string
  pending: number
  failed: number
}

/** Returns a function that shows the counts of all channels. Null: they are unknown. */
export function notificationGauges(registry: Registry): (counts: NotificationCounts[] | null) => void {
  const gauge = (name: string, help: string) =>
    new Gauge({ name, help, aggregator: 'max', labelNames: ['format'] as const, registers: [registry] })
  const pending = gauge('oa_audience_notifications_pending', 'Notifications that are not sent yet')
  const failed = gauge(
    'oa_audience_notifications_failed',
    'Notifications of the last 30 days that failed permanently',
  )
  return (counts) => {
    for (const each of [pending, failed]) each.reset()
    if (counts === null) return
    // Prometheus sees no increase in a series that first appears with 1, so an alert would miss the first failure.
    for (const each of [pending, failed]) for (const format of FORMATS) each.set({ format }, 0)
    for (const { format, ...count } of counts) {
      pending.inc({ format }, count.pending)
      failed.inc({ format }, count.failed)
    }
  }
}
