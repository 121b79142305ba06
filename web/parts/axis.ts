/** Axes of a chart over time: pure functions of the data, the server's clock and a time zone. Times are seconds since 1970. */

export type Unit = 'hour' | 'day'

const SECONDS: Record<Unit, number> = { hour: 3_600, day: 86_400 }

/** Hours between labels. Each divides a day, so labels have the same hours every day. */
const HOUR_STEPS = [1, 2, 3, 6, 12, 24]

/** Returns every hour from the first stored one to the current one, at most the newest `count`. Hours without deliveries are not stored. */
export function hoursUntilNow(stored: number[], nowMs: number, count: number): number[] {
  if (stored.length === 0) return []
  const first = Math.min(...stored)
  // The clock may be behind the database's, which wrote the hours.
  const last = Math.max(...stored, first + floorTo(nowMs / 1000 - first, SECONDS.hour))
  const length = Math.min(count, (last - first) / SECONDS.hour + 1)
  return Array.from({ length }, (_, i) => last - (length - 1 - i) * SECONDS.hour)
}

/** Converts a day of LINE, such as 2026-01-31, to the start of that day in UTC, so that every reader sees the same date. */
export const timeOfDay = (day: string): number => Date.parse(`${day}T00:00:00Z`) / 1000

/** Returns the range of the axis. uPlot cannot derive it from a single point. */
export function spanOf(low: number, high: number, unit: Unit): [number, number] {
  const half = SECONDS[unit] / 2
  return unit === 'hour' || low === high ? [low - half, high + half] : [low, high]
}

/** Returns at most `max` times that get a label. Each is a time of the data, so no label is repeated. */
export function ticksOf(times: number[], unit: Unit, max: number, timeZone?: string): number[] {
  const most = Math.max(2, max)
  if (unit === 'day') return thinned(times, most)
  const format = new Intl.DateTimeFormat('en', { hour: 'numeric', hourCycle: 'h23', ...inZone(timeZone) })
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

/** Labels of the ticks. Hours show minutes in zones that are half an hour off, and the zone when a clock change repeats an hour. */
export function labelsOf(ticks: number[], unit: Unit, locale: string, timeZone?: string): string[] {
  const date = { month: 'short', day: 'numeric' } as const
  if (unit === 'day') return formatted(ticks, locale, { ...date, timeZone: 'UTC' })
  const hour = { ...date, hour: 'numeric', ...inZone(timeZone) } as const
  const minute = new Intl.DateTimeFormat('en', { minute: 'numeric', ...inZone(timeZone) })
  const isWhole = ticks.every((time) => minute.format(time * 1000) === '0')
  const options = isWhole ? hour : ({ ...hour, minute: '2-digit' } as const)
  const labels = formatted(ticks, locale, options)
  return new Set(labels).size === labels.length
    ? labels
    : formatted(ticks, locale, { ...options, timeZoneName: 'short' })
}

/** Returns `1.2K`, or all digits if short labels would repeat: 1,002 and 1,004 are both 1K. */
export function countLabelsOf(values: number[], locale: string): string[] {
  const short = new Intl.NumberFormat(locale, { notation: 'compact' })
  const labels = values.map((value) => short.format(value))
  if (new Set(labels).size === labels.length) return labels
  const full = new Intl.NumberFormat(locale)
  return values.map((value) => full.format(value))
}

function formatted(ticks: number[], locale: string, options: Intl.DateTimeFormatOptions): string[] {
  const format = new Intl.DateTimeFormat(locale, options)
  return ticks.map((time) => format.format(time * 1000))
}

/** Undefined for the zone of the browser. */
const inZone = (timeZone: string | undefined) => (timeZone === undefined ? {} : { timeZone })

const floorTo = (value: number, step: number): number => Math.floor(value / step) * step
