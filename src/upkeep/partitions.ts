/** The partitions of stored events: created before their time begins, dropped when retention ends. Planner idioms: docs/planner.md. */
import { LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { type Queryable, type Row, statement, unnamed } from '../postgres/statement.ts'

/** A table partitioned by whole days in UTC. A partition's name is the table's name and its first day. */
interface PartitionedTable {
  name: string
  days: number
  /** Partitions created ahead, so that a service that was down for this time still has one. */
  ahead: number
}

/** ISO weeks: `event_20261116` contains the week that begins on that Monday. */
export const EVENTS: PartitionedTable = { name: 'event', days: 7, ahead: 5 }
export const TRACKING_EVENTS: PartitionedTable = { name: 'tracking_event', days: 1, ahead: 14 }

const CHECK_VIOLATION = '23514'

/** One transaction with the creation: several statements in one message. A partition has privileges of its own. */
const closed = (table: string) => `; select revoke_default_privileges(array['${table}'::regclass])`

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
      `create table ${name} partition of ${table} for values from ('${first_day}+00') to ('${next_first_day}+00')${closed(name)}`,
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

// The monthly partitions of event keys. A key begins with the event's time (ULID), which determines its month. Keys of times without
// a partition are in the default partition, and keys that begin with a hash are in a separate one. A sender with a valid signature
// can choose the times of events.

/** Months created ahead, so that a service that was down for this time still has a partition. */
const MONTHS_AHEAD = 2

/** Keys moved from the default partition in one statement: 0.1 s. */
const KEYS_PER_STATEMENT = 10_000

/** Other sessions wait while late keys are moved. Moving this many takes 1 s. */
const LATE_KEYS_MAX = 100_000

interface Month extends Row {
  name: string
  has_begun: boolean
  /** The least key of the month, and that of the next. */
  first_key: string
  next_key: string
}

/** $1 int: months ahead. This month and those ahead that have no partition. */
const selectMissingMonths = statement('select-missing-key-partitions')`
    select to_char(month, '"event_key_"YYYYMMDD') as name, ahead = 0 as has_begun,
           rpad(lpad(to_hex((extract(epoch from month) * 1000)::bigint), 12, '0'), 32, '0')::uuid::text as first_key,
           rpad(lpad(to_hex((extract(epoch from month + interval '1 month') * 1000)::bigint), 12, '0'), 32, '0')::uuid::text
             as next_key
      from generate_series(0, $1::int) as ahead
     cross join lateral (select date_trunc('month', now() at time zone 'UTC') + ahead * interval '1 month' as month) m
     where not exists (select from pg_inherits
                        where inhparent = 'event_key'::regclass
                          and inhrelid = to_regclass(to_char(month, '"event_key_"YYYYMMDD')))
     order by month`

/** Creates the partitions of this month and those ahead. Skips tables that another session has locked until the next run. */
export async function createKeyPartitions(session: Queryable): Promise<void> {
  const missing = await session.query<Month>(selectMissingMonths, [MONTHS_AHEAD])
  for (const month of missing) await unlessLocked(createKeyPartition(session, month))
}

async function createKeyPartition(session: Queryable, month: Month): Promise<void> {
  const isFenced = await hasFence(session, month)
  if (month.has_begun && !isFenced) await attachBegun(session, month)
  else await attachAhead(session, month, isFenced)
}

/** For example the first month of a new database. If the default partition has keys of the month, it keeps receiving them. */
async function attachBegun(session: Queryable, month: Month): Promise<void> {
  if (await isInDefault(session, month)) return
  await createTable(session, month)
  await attach(session, month).catch((error) => {
    if (sqlStateOf(error) !== CHECK_VIOLATION) throw error
  })
}

/**
 * 1. The new table is filled while it is not yet a partition.
 * 2. A constraint, the fence, keeps further keys of the month out of the default partition.
 * 3. Keys of the month are moved out of the default partition. They belong to events with a time in the future. No session finds a
 *    moved key until step 4, but none can store it again, because the fence refuses it.
 * 4. The table becomes a partition. Because of the fence, PostgreSQL does not read the default partition under a lock.
 *
 * If a run is interrupted, the next one continues.
 */
async function attachAhead(session: Queryable, month: Month, isFenced: boolean): Promise<void> {
  const { name, first_key, next_key } = month
  await createTable(session, month)
  if (!isFenced) {
    const addFence = `alter table event_key_default add constraint ${name}_fence
                        check (key < '${first_key}' or key >= '${next_key}') not valid`
    await session.query(unnamed(addFence))
  }
  await moveFromDefault(session, month)
  await session.query(unnamed(`alter table event_key_default validate constraint ${name}_fence`))
  await attach(session, month)
}

/** $1 text: constraint */
const selectFence = statement('select-fence-of-key-partition')`
    select from pg_constraint where conrelid = 'event_key_default'::regclass and conname = $1`

async function hasFence(session: Queryable, { name }: Month): Promise<boolean> {
  const found = await session.query(selectFence, [`${name}_fence`])
  return found.length > 0
}

/** $1 text: least key; $2 text: least key of the next month */
const selectUnpartitionedKey = statement('select-unpartitioned-key')`
    select from event_key_default where key >= $1::uuid and key < $2::uuid limit 1`

async function isInDefault(session: Queryable, { first_key, next_key }: Month): Promise<boolean> {
  const found = await session.query(selectUnpartitionedKey, [first_key, next_key])
  return found.length > 0
}

async function createTable(session: Queryable, { name }: Month): Promise<void> {
  await session.query(
    unnamed(`create table if not exists ${name} (like event_key including all)${closed(name)}`),
  )
  await session.query(
    unnamed(`create index if not exists ${name}_received on ${name} using brin (received_at)`),
  )
}

/** One transaction: several statements in one message. */
async function attach(session: Queryable, { name, first_key, next_key }: Month): Promise<void> {
  const attachUnfenced = `
    alter table event_key attach partition ${name} for values from ('${first_key}') to ('${next_key}');
    alter table event_key_default drop constraint if exists ${name}_fence`
  await session.query(unnamed(attachUnfenced))
}

async function moveFromDefault(session: Queryable, { name, first_key, next_key }: Month): Promise<void> {
  const move = unnamed(`
    with deleted as (
      delete from event_key_default
       where ctid = any (array(select ctid from event_key_default
                                where key >= $1::uuid and key < $2::uuid limit $3))
      returning *
    ), inserted as (
      insert into ${name} select * from deleted returning 1
    )
    select count(*)::int from inserted`)
  for (let moved = KEYS_PER_STATEMENT; moved === KEYS_PER_STATEMENT; ) {
    const [row] = await session.query<{ count: number }>(move, [first_key, next_key, KEYS_PER_STATEMENT])
    moved = row?.count ?? 0
  }
}

/** $1 int: days. Months that ended so long ago, and whether they ended twice as long ago. */
const selectExpiredMonths = statement('select-expired-key-partitions')`
    select c.relname as name, month_end <= today - 2 * $1::int as is_overdue
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     cross join lateral (select (now() at time zone 'UTC')::date as today,
                                (to_date(right(c.relname, 8), 'YYYYMMDD') + interval '1 month')::date as month_end) m
     where i.inhparent = 'event_key'::regclass and c.relname ~ '_\\d{8}$' and month_end <= today - $1::int
     order by c.relname`

/**
 * Drops the months that ended more than `days` ago. Keys that were received later are moved to the default partition, where they stay
 * for `days` after their receipt. If there are too many, the month stays until it ended twice as long ago.
 */
export async function dropExpiredKeyPartitions(session: Queryable, days: number): Promise<void> {
  const expired = await session.query<{ name: string; is_overdue: boolean }>(selectExpiredMonths, [days])
  for (const { name, is_overdue } of expired) {
    // Nothing is deleted from a month, so the BRIN index finds its last pages.
    const late = await session.query(
      unnamed(`select 1 from ${name} where received_at >= now() - $1::int * interval '1 day' limit $2`),
      [days, LATE_KEYS_MAX + 1],
    )
    if (late.length > LATE_KEYS_MAX && !is_overdue) continue
    const keepLate =
      late.length > LATE_KEYS_MAX
        ? ''
        : `insert into event_key select * from ${name} where received_at >= now() - interval '${days} days';`
    // One transaction: several statements in one message.
    await unlessLocked(
      session.query(
        unnamed(`alter table event_key detach partition ${name}; ${keepLate} drop table ${name}`),
      ),
    )
  }
}
