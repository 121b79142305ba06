/** Metrics of the database: its state, its clock, and the connections to it. */
import { Counter, Gauge, type Registry } from 'prom-client'
import { clockCompared, databaseBusy, READ_OUTCOMES, readServed } from './facts.ts'

const DATABASE_STATES = ['up', 'read-only', 'failing', 'down']
const REPLICATION_STATES = ['synchronous', 'asynchronous', 'behind', 'missing', 'unknown']

export interface WatchedDatabase {
  connectionStates(): Array<{ pool: string; total: number; idle: number; waiting: number }>
  state(): Promise<string>
  readonly replication: string | null
  replicaLags(): Promise<Array<{ replica: string; behindBytes: number | null }>>
}

export function countDatabaseFacts(registry: Registry): () => void {
  const busy = new Counter({
    name: 'oa_audience_database_busy_total',
    help: 'Requests refused after waiting for a connection: because of their own account (429), or of the whole pool (503)',
    labelNames: ['pool', 'reason'] as const,
    registers: [registry],
  })
  busy.inc({ pool: 'clients', reason: 'account' }, 0)
  for (const pool of ['clients', 'intake']) busy.inc({ pool, reason: 'pool' }, 0)
  const skew = new Gauge({
    name: 'oa_audience_database_clock_skew_seconds',
    aggregator: 'average',
    help: "Seconds that the database's clock is ahead of this machine's, negative if it is behind; read every 10 s",
    registers: [registry],
  })
  const reads = new Counter({
    name: 'oa_audience_reads_total',
    help: 'Reads that a replica may serve, by outcome: replica, or the primary served them because every replica was behind or unavailable',
    labelNames: ['outcome'] as const,
    registers: [registry],
  })
  for (const outcome of READ_OUTCOMES) reads.inc({ outcome }, 0)
  const ends = [
    readServed.subscribe(({ outcome }) => reads.inc({ outcome })),
    databaseBusy.subscribe((facts) => busy.inc(facts)),
    clockCompared.subscribe(({ skewSeconds }) => skew.set(skewSeconds)),
  ]
  return () => {
    for (const end of ends) end()
  }
}

/** Reads the state of the connections and of the database whenever the metrics are scraped. */
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
