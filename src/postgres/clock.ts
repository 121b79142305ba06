/** Compares the database's clock with this machine's. */
import { type Queryable, statement } from './statement.ts'

/** NTP keeps machines within milliseconds. A larger difference means that a clock is wrong. */
export const CLOCK_SKEW_MAX_SECONDS = 5

const selectClock = statement('select-clock')`
    select extract(epoch from clock_timestamp())::float8 * 1000 as ms`

/** Returns the seconds that the database's clock is ahead of this machine's. The duration of the query counts as 0. */
export async function readClockSkew(database: Queryable, now = Date.now): Promise<number> {
  const sentMs = now()
  const [row] = await database.query<{ ms: number }>(selectClock)
  const receivedMs = now()
  const ms = row?.ms ?? sentMs
  return (Math.max(0, ms - receivedMs) - Math.max(0, sentMs - ms)) / 1000
}
