/** Hours of a channel in which it receives only what is broken, by its own clock. */
import { LRUCache } from 'lru-cache'

/** `22:00-07:00` ends on the next day. */
const PATTERN = /^([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)$/

const MINUTE_MS = 60_000
const DAY_MINUTES = 24 * 60

/** Returns null unless the text is two different times of a day, such as 22:00-07:00. */
export function parseQuietHours(text: string): { fromMinute: number; untilMinute: number } | null {
  const [, fromHour, fromMinutes, untilHour, untilMinutes] = PATTERN.exec(text) ?? []
  if (fromHour === undefined) return null
  const fromMinute = Number(fromHour) * 60 + Number(fromMinutes)
  const untilMinute = Number(untilHour) * 60 + Number(untilMinutes)
  return fromMinute === untilMinute ? null : { fromMinute, untilMinute }
}

/** Creating a format takes 50 µs, and a pass uses one for each channel. */
const clocks = new LRUCache<string, Intl.DateTimeFormat>({ max: 500 })

/** Returns null unless the name is one of the IANA time zones that this Node.js knows. */
function clockOf(timeZone: string): Intl.DateTimeFormat | null {
  const cached = clocks.get(timeZone)
  if (cached !== undefined) return cached
  try {
    const clock = new Intl.DateTimeFormat('en-GB', {
      timeZone,
      hour: '2-digit',
      minute: '2-digit',
      hourCycle: 'h23',
    })
    clocks.set(timeZone, clock)
    return clock
  } catch {
    return null
  }
}

export const isTimeZone = (name: string): boolean => clockOf(name) !== null

/**
 * Returns when the quiet hours that contain the time end, in milliseconds since 1970, or null if it is in none. Other programs may have
 * stored hours or a zone that cannot be read: then there are no quiet hours, because a message too many is better than one too few.
 */
export function quietUntil(quietHours: string | null, timeZone: string, nowMs: number): number | null {
  const hours = quietHours === null ? null : parseQuietHours(quietHours)
  if (hours === null || !isTimeZone(timeZone)) return null
  const { fromMinute, untilMinute } = hours
  const minute = minuteOfDay(timeZone, nowMs)
  const length = (untilMinute - fromMinute + DAY_MINUTES) % DAY_MINUTES
  const passed = (minute - fromMinute + DAY_MINUTES) % DAY_MINUTES
  if (passed >= length) return null
  return nextMinuteOfDay(timeZone, untilMinute, nowMs)
}

/** The next time at which the clock of the zone shows this minute of a day. A change to or from summer time moves it by an hour at most. */
export function nextMinuteOfDay(timeZone: string, minuteWanted: number, nowMs: number): number {
  const startOfMinute = Math.floor(nowMs / MINUTE_MS) * MINUTE_MS
  const ahead = (minuteWanted - minuteOfDay(timeZone, nowMs) + DAY_MINUTES) % DAY_MINUTES || DAY_MINUTES
  const guess = startOfMinute + ahead * MINUTE_MS
  // The offset may change on the way. A clock that skips the minute shows a later one.
  const shown = minuteOfDay(timeZone, guess)
  const off = ((shown - minuteWanted + DAY_MINUTES + DAY_MINUTES / 2) % DAY_MINUTES) - DAY_MINUTES / 2
  const corrected = guess - off * MINUTE_MS
  return corrected > nowMs && minuteOfDay(timeZone, corrected) === minuteWanted ? corrected : guess
}

function minuteOfDay(timeZone: string, ms: number): number {
  const [hour = 0, minute = 0] = (clockOf(timeZone)?.format(ms) ?? '').split(':').map(Number)
  return hour * 60 + minute
}
