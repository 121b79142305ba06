/** LINE's days as SQL. They begin at 15:00 UTC, which is midnight in Japan. LINE's statistics are by these days. */

/** The present day, as a date. */
export const LINE_TODAY = `(now() at time zone 'UTC' + interval '9 hours')::date`

/** When a day begins, as a timestamptz. $1 is the day. */
export const LINE_DAY_START = `($1::date::timestamp at time zone 'UTC' - interval '9 hours')`
