/** Days of LINE's statistics, such as 2026-11-01. A day begins at 15:00 UTC, which is midnight in Japan. */

/** Of two days, both inclusive. */
export interface Period {
  from: string
  to: string
}

const HOUR_MS = 3_600_000
export const DAY_MS = 24 * HOUR_MS
const OFFSET_MS = 9 * HOUR_MS

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 'YYYY-MM-DD'.length)

/** The day of a time. @param ms since 1970 */
export const lineDay = (ms: number): string => dayOf(ms + OFFSET_MS)

export const plusDays = (day: string, days: number): string => dayOf(Date.parse(day) + days * DAY_MS)

/** The Monday of the day's week. */
export const mondayOf = (day: string): string => plusDays(day, -((new Date(day).getUTCDay() + 6) % 7))

// SQL.

/** The day of a timestamptz, as a date. */
export const lineDayOf = (time: string): string => `(${time} at time zone 'UTC' + interval '9 hours')::date`

/** When a date ends, as a timestamptz. */
export const lineDayEnd = (day: string): string =>
  `(${day}::timestamp at time zone 'UTC' + interval '15 hours')`

export const LINE_TODAY = lineDayOf('now()')
