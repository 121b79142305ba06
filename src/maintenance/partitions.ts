/** The weekly partitions of stored events: created before a week begins, dropped when retention ends. */
import { LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import type { Queryable } from '../postgres/statement.ts'

/** Weeks that have a partition before they begin: a service may be down that long and still find one. */
const WEEKS_AHEAD = 5

const CHECK_VIOLATION = '23514'

/** $1 int: weeks ahead. ISO weeks, Monday to Monday in UTC: `event_20261116` holds the week that begins on that day. */
const SELECT_MISSING = `
  select name, monday::text, (monday + interval '7 days')::text as next_monday
    from (select to_char(monday, '"event_"YYYYMMDD') as name, monday
            from generate_series(date_trunc('week', now() at time zone 'UTC'),
                                 date_trunc('week', now() at time zone 'UTC') + $1 * interval '7 days',
                                 interval '7 days') as monday) week
   where to_regclass(name) is null`

/** $1 int: days of retention. Partitions whose last day is older. */
const SELECT_EXPIRED = `
  select c.relname as name
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where i.inhparent = 'event'::regclass and c.relname ~ '^event_\\d{8}$'
     and to_date(substr(c.relname, 7), 'YYYYMMDD') + 7 <= (now() at time zone 'UTC')::date - $1::int`

/** Creates the partitions of this week and the next five. Skips those whose table another session has locked. */
export async function createPartitions(session: Queryable): Promise<void> {
  const missing = await session.query<{ name: string; monday: string; next_monday: string }>(SELECT_MISSING, [
    WEEKS_AHEAD,
  ])
  for (const { name, monday, next_monday } of missing) {
    const create = session.query(
      `create table ${name} partition of event for values from ('${monday}+00') to ('${next_monday}+00')`,
    )
    await unlessLocked(create).catch((error) => {
      // The default partition already holds events of that week, so it keeps receiving them.
      if (sqlStateOf(error) !== CHECK_VIOLATION) throw error
    })
  }
}

export async function dropExpiredPartitions(session: Queryable, retentionDays: number): Promise<void> {
  const expired = await session.query<{ name: string }>(SELECT_EXPIRED, [retentionDays])
  for (const { name } of expired) await unlessLocked(session.query(`drop table ${name}`))
}

/** The result of `work`, or null if another session holds a lock that it needs. */
export async function unlessLocked<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work
  } catch (error) {
    if (sqlStateOf(error) === LOCK_TIMEOUT) return null
    throw error
  }
}
