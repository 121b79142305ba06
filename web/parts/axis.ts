/** Axes of a chart over time: pure functions of the data, the server's clock and a time zone. Times are seconds since 1970. */

export type Unit = 'hour' | 'day'

const SECONDS: Record<Unit, number> = { hour: 3_600, day: 86_400 }

/** Hours between labels. Each divides a day, so labels have the same hours every day. */
const HOUR_STEPS = [1, 2, 3, 6, 12, 24]

/**
 * Returns every hour from the first stored one to the current one, at most the newest `count`. Hours without deliveries are not
 * stored, and none is older than `count` hours. A clock that is behind or ahead of the database's moves no stored hour out of sight.
 */
export function hoursUntilNow(stored: number[], nowMs: number, count: number): number[] {
  if (stored.length === 0) return []
  const first = Math.min(...stored)
  const current = first + floorTo(nowMs / 1000 - first, SECONDS.hour)
  const last = Math.max(...stored, Math.min(current, first + (count - 1) * SECONDS.hour))
  const length = Math.min(count, (last - first) / SECONDS.hour + 1)
  return Array.from({ length }, (_, i) => last - (length - 1 - i) * SECONDS.hour)
}

/** Returns the indexes of the values between two gaps. A line draws nothing there. */
export function lonePoints(values: Array<number | null>): number[] {
  const isCounted = (index: number) => typeof values[index] === 'number'
  return [...values.keys()].filter((i) => isCounted(i) && !isCounted(i - 1) && !isCounted(i + 1))
}

/** Converts a day of LINE, such as 2026-01-31, to the start of that day in UTC, so that every reader sees the same date. */
export const timeOfDay = (day: string): number => Date.parse(`${day}T00:00:00Z`) / 1000

/** Returns the range of the axis, with room for half a bar at each end. uPlot cannot derive it from a single point. */
export function spanOf(low: number, high: number, unit: Unit): [number, number] {
  const half = SECONDS[unit] / 2
  return [low - half, high + half]
}

/** Returns at most `max` times that get a label. Each is a time of the data, so no label is repeated. */
export function ticksOf(times: number[], unit: Unit, max: number, timeZone?: string): number[] {
  const most = Math.max(2, max)
  if (unit === 'day') return thinned(times, most)
  const format = new Intl.DateTimeFormat('en', { hour: 'numeric', hourCycle: 'h23', timeZone })
  const hours = times.map((time) => Number(format.format(time * 1000)))
  for (const step of HOUR_STEPS) {
    const ticks = times.filter((_, i) => (hours[i] as number) % step === 0)
    if (ticks.length <= most) return ticks.length > 0 ? ticks : times.slice(-1)
  }
  const midnights = times.filter((_, i) => hours[i] === 0)
  return thinned(midnights, most)
}

function thinned(times: number[], max: number): number[] {
  const step = Math.ceil(times.length / max)
  return times.filter((_, i) => (times.length - 1 - i) % step === 0)
}

/**
 * Labels of the ticks. Hours show minutes in zones that are half an hour off, and the zone when a clock change repeats an hour.
 * @param at.year for the rows of a table
 */
export function labelsOf(
  times: number[],
  unit: Unit,
  locale: string,
  { timeZone, year }: { timeZone?: string | undefined; year?: 'numeric' } = {},
): string[] {
  const date = { year, month: 'short', day: 'numeric' } as const
  if (unit === 'day') return formatted(times, locale, { ...date, timeZone: 'UTC' })
  const minute = new Intl.DateTimeFormat('en', { minute: 'numeric', timeZone })
  const isWhole = times.every((time) => minute.format(time * 1000) === '0')
  const options = { ...date, hour: 'numeric', minute: isWhole ? undefined : '2-digit', timeZone } as const
  const labels = formatted(times, locale, options)
  return new Set(labels).size === labels.length
    ? labels
    : formatted(times, locale, { ...options, timeZoneName: 'short' })
}

/** Steps between labels of counts: 1, 2 and 5 times each power of ten. There is no half a person. */
export const COUNT_STEPS = Array.from({ length: 12 }, (_, power) =>
  [1, 2, 5].map((digit) => digit * 10 ** power),
).flat()

const COUNT_SPAN_MIN = 4

/** Returns the range of an axis of counts. Bars begin at zero, and may go below. Null: no value is known. */
export function countRange(low: number | null, high: number | null): [number, number] {
  const [least, most] = [low ?? 0, high ?? 0]
  return [Math.min(0, Math.round(least * 1.1)), Math.max(COUNT_SPAN_MIN, Math.round(most * 1.1))]
}

const SHORT_DIGITS = 3

/** Returns `1.25K`, or all digits if a short label would round: 1,002 and 1,004 are both 1K. Bars below zero are counts, too. */
export function countLabelsOf(values: number[], locale: string): string[] {
  const isExact = values.every((value) => Number(value.toPrecision(SHORT_DIGITS)) === value)
  const format = new Intl.NumberFormat(
    locale,
    isExact ? { notation: 'compact', maximumSignificantDigits: SHORT_DIGITS } : {},
  )
  return values.map((value) => format.format(Math.abs(value)))
}

function formatted(ticks: number[], locale: string, options: Intl.DateTimeFormatOptions): string[] {
  const format = new Intl.DateTimeFormat(locale, options)
  return ticks.map((time) => format.format(time * 1000))
}

const floorTo = (value: number, step: number): number => Math.floor(value / step) * step
