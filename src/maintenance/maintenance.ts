/** What is stored does not grow without end: events in weekly partitions, made ahead and dropped when they are old. */
import type { Config } from '../config.ts'
import { LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import type { Queryable } from '../postgres/statement.ts'

/** Weeks that have their partition before they begin: a service may be down for that long and still find one. */
const WEEKS_AHEAD = 5
/** How often partitions are looked after. */
export const MAINTENANCE_INTERVAL_MS = 60 * 60 * 1000
/** Rows deleted in one statement: short enough to hold nobody up. */
const ROWS_PER_STATEMENT = 10_000

/** Wrong signatures are counted for the doctor, who looks back a week. */
const REFUSALS_KEPT_DAYS = 30

/**
 * Whoever wants a table that we wait for waits behind us: much less than the 600 ms that a flush does. A dump holds its tables
 * for hours.
 */
const LOCK_WAIT_MS = 200

const CHECK_VIOLATION = '23514'

/** Any fixed number: the advisory lock that lets one instance at a time do the maintenance. */
const MAINTENANCE_LOCK = 7_301_004

/** ISO weeks, Monday to Monday in UTC, of which `event_20261116` is the one that begins on that day. */
const weeks = `
  select to_char(monday, '"event_"YYYYMMDD') as name, monday, monday + interval '7 days' as next_monday
    from generate_series(date_trunc('week', now() at time zone 'UTC'),
                         date_trunc('week', now() at time zone 'UTC') + $1 * interval '7 days',
                         interval '7 days') as monday`

/**
 * Makes partitions for this week and the next ones; drops events and edits beyond RETENTION_DAYS, keys, ids of unsent messages and of
 * erased members and the activity of people who are no members beyond DEDUPLICATION_DAYS, counts of refusals beyond 30 days.
 * One instance at a time: others leave it to that one. A table that is in use is left for next time.
 */
export async function runMaintenance(
  session: Queryable,
  { retentionDays, deduplicationDays }: Pick<Config, 'retentionDays' | 'deduplicationDays'>,
): Promise<void> {
  await alone(session, async () => {
    await makeMissing(session)
    if (retentionDays > 0) await forgetBeyondRetention(session, retentionDays)
    await forgetOld(session, 'event_key', 'received_at', deduplicationDays)
    // The message itself may come after its unsend, as late as any event.
    await forgetOld(session, 'unsent_message', 'unsent_at', deduplicationDays)
    await forgetOld(session, 'tracked_activity', 'received_at', deduplicationDays, isNoMember)
    await unlessInUse(
      session.query(`delete from refused_delivery where day < (now() at time zone 'UTC')::date - $1::int`, [
        REFUSALS_KEPT_DAYS,
      ]),
    )
    await forgetOld(session, 'erased_member', 'deleted_at', deduplicationDays)
  })
}

/** What a service needs before its first event, as far as no other is at it. Without it events stand in the default partition. */
export async function makePartitions(session: Queryable): Promise<void> {
  await alone(session, () => makeMissing(session))
}

async function alone(session: Queryable, work: () => Promise<void>): Promise<void> {
  const [lock] = await session.query<{ is_ours: boolean }>('select pg_try_advisory_lock($1) as is_ours', [
    MAINTENANCE_LOCK,
  ])
  if (lock?.is_ours !== true) return
  try {
    await session.query(`set lock_timeout = ${LOCK_WAIT_MS}`)
    await work()
  } finally {
    await session.query('select pg_advisory_unlock($1)', [MAINTENANCE_LOCK])
  }
}

/** What was done, or null where somebody holds what it needs. */
async function unlessInUse<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work
  } catch (error) {
    if (sqlStateOf(error) === LOCK_TIMEOUT) return null
    throw error
  }
}

async function makeMissing(session: Queryable): Promise<void> {
  const missing = await session.query<{ name: string; monday: string; next_monday: string }>(
    `select name, monday::text, next_monday::text from (${weeks}) week where to_regclass(name) is null`,
    [WEEKS_AHEAD],
  )
  for (const { name, monday, next_monday } of missing) {
    const make = session.query(
      `create table ${name} partition of event for values from ('${monday}+00') to ('${next_monday}+00')`,
    )
    await unlessInUse(make).catch((error) => {
      // Events of that week stand in the default partition already: the rest of the week goes there too.
      if (sqlStateOf(error) !== CHECK_VIOLATION) throw error
    })
  }
}

async function forgetBeyondRetention(session: Queryable, retentionDays: number): Promise<void> {
  const old = await session.query<{ name: string }>(
    `select c.relname as name
       from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'event'::regclass and c.relname ~ '^event_\\d{8}$'
        and to_date(substr(c.relname, 7), 'YYYYMMDD') + 7 <= (now() at time zone 'UTC')::date - $1::int`,
    [retentionDays],
  )
  for (const { name } of old) await unlessInUse(session.query(`drop table ${name}`))
  await forgetOld(session, 'event_default', 'received_at', retentionDays)
  await forgetOld(session, 'member_edit', 'edited_at', retentionDays)
}

const isNoMember = `not exists (
  select from audience_member m
   where m.channel_oa_id = tracked_activity.channel_oa_id and m.user_id = tracked_activity.user_id)`

/**
 * In large tables the index by time is a few bytes for a whole range of rows: what is old is found without reading the rest. Only
 * tracked_activity, whose rows change, has none, and is read. What has been told anew since it was found stays.
 */
async function forgetOld(
  session: Queryable,
  table: string,
  column: string,
  days: number,
  condition = 'true',
): Promise<void> {
  for (let deleted = ROWS_PER_STATEMENT; deleted === ROWS_PER_STATEMENT; ) {
    const rows = await unlessInUse(
      session.query<{ count: number }>(
        `with gone as (
           delete from ${table} where ctid = any (array(
             select ctid from ${table} where ${column} < now() - $1 * interval '1 day' and ${condition} limit $2))
             and ${column} < now() - $1 * interval '1 day'
           returning 1
         )
         select count(*)::int from gone`,
        [days, ROWS_PER_STATEMENT],
      ),
    )
    deleted = rows?.[0]?.count ?? 0
  }
}
