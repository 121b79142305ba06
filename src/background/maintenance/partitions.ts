/** The partitions of stored events: created before their time begins, dropped when retention ends. */
import { LOCK_TIMEOUT, sqlStateOf } from '../../postgres/faults.ts'
import { type Queryable, statement, unnamed } from '../../postgres/statement.ts'

/** A table partitioned by whole days in UTC. A partition's name is the table's name and its first day. */
export interface PartitionedTable {
  name: string
  days: number
  /** Partitions created ahead, so that a service that was down for this time still has one. */
  ahead: number
}

/** ISO weeks: `event_20261116` contains the week that begins on that Monday. */
export const EVENTS: PartitionedTable = { name: 'event', days: 7, ahead: 5 }
export const TRACKING_EVENTS: PartitionedTable = { name: 'tracking_event', days: 1, ahead: 14 }

const CHECK_VIOLATION = '23514'

/** $1 text: table; $2 int: days of a partition, 7 or 1; $3 int: partitions ahead. */
const selectMissing = statement('select-missing-partitions')`
    select name, first_day::text, (first_day + $2 * interval '1 day')::text as next_first_day
      from (select $1 || to_char(first_day, '"_"YYYYMMDD') as name, first_day
              from (select date_trunc(case when $2 = 7 then 'week' else 'day' end, now() at time zone 'UTC')
                           + ahead * $2 * interval '1 day' as first_day
                      from generate_series(0, $3::int) as ahead) day) partition
     where to_regclass(name) is null`

/** $1 text: table; $2 int: days of a partition; $3 int: days of retention. Partitions whose last day is older. */
const selectExpired = statement('select-expired-partitions')`
    select c.relname as name
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = $1::regclass and c.relname ~ '_\\d{8}$'
       and to_date(right(c.relname, 8), 'YYYYMMDD') + $2::int <= (now() at time zone 'UTC')::date - $3::int`

/** Creates the current partition and those ahead. Skips them if another session has locked the table. */
export async function createPartitions(
  session: Queryable,
  { name: table, days, ahead }: PartitionedTable,
): Promise<void> {
  const missing = await session.query<{ name: string; first_day: string; next_first_day: string }>(
    selectMissing,
    [table, days, ahead],
  )
  for (const { name, first_day, next_first_day } of missing) {
    const create = unnamed(
      `create table ${name} partition of ${table} for values from ('${first_day}+00') to ('${next_first_day}+00')`,
    )
    await unlessLocked(session.query(create)).catch((error) => {
      // The default partition already holds events of that time, so it keeps receiving them.
      if (sqlStateOf(error) !== CHECK_VIOLATION) throw error
    })
  }
}

export async function dropExpiredPartitions(
  session: Queryable,
  { name: table, days }: PartitionedTable,
  retentionDays: number,
): Promise<void> {
  const expired = await session.query<{ name: string }>(selectExpired, [table, days, retentionDays])
  for (const { name } of expired) await unlessLocked(session.query(unnamed(`drop table ${name}`)))
}

/** Returns the result of `work`, or null if another session holds a lock that it needs. */
export async function unlessLocked<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work
  } catch (error) {
    if (sqlStateOf(error) === LOCK_TIMEOUT) return null
    throw error
  }
}
