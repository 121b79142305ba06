/** SQL expressions for the days of LINE's statistics. A day begins at 15:00 UTC, which is midnight in Japan. */

export const LINE_TODAY = `(now() at time zone 'UTC' + interval '9 hours')::date`
