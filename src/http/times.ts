/** Reads the times that operators enter, and formats periods. */
import { refuseInput } from './validate.ts'

/** PostgreSQL and JavaScript write years before 1 and after 9999 in different ways. */
const LATEST_MS = Date.UTC(10_000, 0) - 1

/**
 * Reads ISO 8601 with an offset or Z, or a date, which begins at 00:00 UTC. Returns milliseconds since 1970: 0 for earlier times,
 * because no event was received before. Throws `invalid_input`.
 */
export function readTime(field: string, text: string): number {
  const ms = isoMs(text.length === DAY_LENGTH ? `${text}T00:00Z` : unescaped(text))
  if (Number.isNaN(ms))
    refuseInput(field, 'must be a time such as 2026-11-21T09:00:00+09:00 or 2026-11-21T00:00:00Z, or a date')
  return Math.min(Math.max(0, ms), LATEST_MS)
}

/** In microseconds, as times of receipt are compared. */
export const readTimeUs = (field: string, text: string): bigint => BigInt(readTime(field, text)) * 1_000n

export const timeOrNull = (field: string, text: string | undefined): string | null =>
  text === undefined ? null : new Date(readTime(field, text)).toISOString()

const DAY_LENGTH = '2026-11-21'.length

/** A plus sign that a client did not escape arrives as a space. */
const unescaped = (time: string): string => time.replace(' ', '+')

/** Milliseconds since 1970 of a time in ISO 8601 with a time zone. NaN: it is none. */
export function isoMs(text: string): number {
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/.test(text)
  return isTime && isDay(text.slice(0, DAY_LENGTH)) ? Date.parse(text) : Number.NaN
}

/** Date.parse reads February 30 as March 2. A feed would then miss the changes in between. */
function isDay(text: string): boolean {
  const day = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(day.getTime()) && day.toISOString().startsWith(text)
}

const UNITS = { second: 's', minute: 'min', hour: 'h', day: 'days' } as const

/** Formats a period in a unit that keeps its precision: `90 s`, `45 min`, `20 h`, `3 days`. */
export function age(seconds: number): string {
  const [count, unit] = periodOf(seconds)
  return `${count} ${UNITS[unit]}`
}

export function periodOf(seconds: number): [count: number, unit: keyof typeof UNITS] {
  if (seconds < 120) return [Math.round(seconds), 'second']
  if (seconds < 7200) return [Math.round(seconds / 60), 'minute']
  return seconds < 172_800 ? [Math.round(seconds / 3600), 'hour'] : [Math.round(seconds / 86_400), 'day']
}
