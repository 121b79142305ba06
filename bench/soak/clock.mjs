/**
 * Retention with days of one minute.
 *
 * The service's own code of maintenance runs once a minute in a session of this program. In that session `now()` is a function
 * that runs 1,440 times as fast, because its schema comes before pg_catalog in the search path. The same clock is the default of
 * the columns by which retention finds old rows.
 *
 * LINE's event ids begin with the time of the fast clock, so their keys are in its months. The few keys that begin with another real
 * time are in the month of the start, and later in the default partition.
 *
 * Accelerated: partitions of `event` and `tracking_event`, `event_key`, `unsent_message`, `tracked_activity`, `member_edit`,
 * and `erased_member`. Not accelerated, because the service itself compares or writes their times: change marks, deliveries to
 * endpoints, hours of deliveries and days of accounts. Empty temporary tables hide the first and the last two from the session,
 * or it would delete rows that are minutes old. PostgreSQL's vacuum and checkpoints also keep the real clock.
 */
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { runMaintenance } from '../../dist/src/upkeep/maintenance.js'
import { ulid } from '../../dist/tools/simulator/events.js'

/** Days are one minute long, and events leave in partitions of seven. Every steady state is reached after 21 minutes. */
const RETENTION = {
  retentionDays: 14,
  deduplicationDays: 20,
  trackingRetentionDays: 3,
  auditRetentionDays: 400,
}
const DAY_MS = 60_000
const SPEED = 86_400_000 / DAY_MS
/** The lock of maintenance.ts. The session holds it, so that the services' hourly run, with the real clock, stays out. */
const MAINTENANCE_LOCK = 7_301_004
const RETRY_MS = 1_000

/** Weeks of seven minutes, and the day until the next maintenance, twice in case that PostgreSQL was killed. */
const EVENT_AGE_MAX_DAYS = 14 + 7 + 2
const TRACKING_AGE_MAX_DAYS = 3 + 1 + 2

const COLUMNS = {
  event: 'received_at',
  tracking_event: 'received_at',
  event_key: 'received_at',
  unsent_message: 'unsent_at',
  tracked_activity: 'received_at',
  member_edit: 'edited_at',
  erased_member: 'deleted_at',
}
const HIDDEN = ['change_mark', 'delivery_hour', 'account_day']

let startMs = 0

/** A new id of an event of LINE. */
export const eventId = () => ulid(startMs + (Date.now() - startMs) * SPEED)

/** Installs the clock in a migrated database without accounts. */
export async function installClock(database) {
  await database.query('create schema soak')
  const [{ start }] = await database.query('select pg_catalog.now()::text as start')
  startMs = Date.parse(start)
  await database.query(
    `create function soak.now() returns timestamptz language sql stable
       return timestamptz '${start}' + (pg_catalog.now() - timestamptz '${start}') * ${SPEED}`,
  )
  for (const [table, column] of Object.entries(COLUMNS)) {
    await database.query(`alter table ${table} alter column ${column} set default soak.now()`)
  }
  const month = `date_trunc('month', soak.now() at time zone 'UTC')::date`
  await database.query(`alter table tracked_activity alter column active_month set default ${month}`)
  // A flush sets the time of activity that grows again, so the defaults are not enough.
  await database.query(
    `create function soak.touch() returns trigger language plpgsql as $$
     begin new.received_at := soak.now(); new.active_month := ${month}; return new; end $$`,
  )
  await database.query(
    'create trigger soak_touched before update on tracked_activity for each row execute function soak.touch()',
  )
}

export class FastMaintenance {
  #database
  #isStopped = false
  #work = Promise.resolve()
  /** Since the last `take`. */
  #figures = { runs: 0, failures: 0, longestMs: 0 }

  constructor(database) {
    this.#database = database
  }

  /** Resolves after the first run, which makes the partitions. */
  start() {
    return new Promise((resolve) => {
      this.#work = this.#repeat(resolve)
    })
  }

  async stop() {
    this.#isStopped = true
    await this.#work
  }

  take() {
    const taken = this.#figures
    this.#figures = { runs: 0, failures: 0, longestMs: 0 }
    return taken
  }

  /** A killed PostgreSQL ends the session, and the next one continues. */
  async #repeat(onRun) {
    while (!this.#isStopped) {
      try {
        await this.#database.session((session) => this.#maintain(session, onRun))
      } catch {
        this.#figures.failures += 1
        await sleep(RETRY_MS)
      }
    }
  }

  async #maintain(session, onRun) {
    await session.query('select pg_advisory_lock($1)', [MAINTENANCE_LOCK])
    for (const table of HIDDEN) {
      await session.query(`create temp table ${table} (like public.${table} including all)`)
    }
    await session.query('set search_path = public, soak, pg_catalog')
    while (!this.#isStopped) {
      const startedAt = performance.now()
      await runMaintenance(session, RETENTION)
      const tookMs = performance.now() - startedAt
      this.#figures.runs += 1
      this.#figures.longestMs = Math.max(this.#figures.longestMs, tookMs)
      onRun()
      const untilMs = Date.now() + DAY_MS
      while (!this.#isStopped && Date.now() < untilMs) {
        await sleep(RETRY_MS)
        await session.query('select 1')
      }
    }
  }
}

/** Every event has a partition, and none is older than retention allows. */
export async function findKeptTooLong(database) {
  const wrong = []
  for (const [table, days] of [
    ['event', EVENT_AGE_MAX_DAYS],
    ['tracking_event', TRACKING_AGE_MAX_DAYS],
  ]) {
    const [{ outside, age }] = await database.query(
      `select (select count(*)::int from ${table}_default) as outside,
              coalesce(extract(epoch from soak.now() - min(received_at)) / 86400, 0)::float8 as age from ${table}`,
    )
    if (outside > 0) wrong.push(`${outside} rows of ${table} have no partition`)
    if (age > days) wrong.push(`${table} has a row that is ${age.toFixed(1)} days old`)
  }
  return wrong
}
