/** SQL expressions for LINE's days, by which LINE counts its statistics. A day begins at 15:00 UTC, which is midnight in Japan. */

/** The current day, as a date. */
export const LINE_TODAY = `(now() at time zone 'UTC' + interval '9 hours')::date`

/** When a day begins, as a timestamptz. $1 is the day. */
export const LINE_DAY_START = `($1::date::timestamp at time zone 'UTC' - interval '9 hours')`
