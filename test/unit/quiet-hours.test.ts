/** Quiet hours of notification channels, by the clocks of zones with and without summer time. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { nextSummary } from '../../src/background/notifications/summary.ts'
import { nextMinuteOfDay, parseQuietHours, quietUntil } from '../../src/operator/notifications/quiet-hours.ts'
import { runs } from '../support/runs.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

/** Lord Howe changes its clock by half an hour, and Apia has skipped a day. */
const ZONES = [
  ...['UTC', 'Asia/Bangkok', 'Asia/Kathmandu', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe'],
  ...['America/Sao_Paulo', 'Pacific/Apia'],
]

function minuteOfDay(timeZone: string, ms: number): number {
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  })
  const [hour = 0, minute = 0] = format.format(ms).split(':').map(Number)
  return hour * 60 + minute
}

const text = (minute: number) =>
  `${String(Math.floor(minute / 60)).padStart(2, '0')}:${String(minute % 60).padStart(2, '0')}`

const zone = fc.constantFrom(...ZONES)
const minute = fc.nat(24 * 60 - 1)
const uniform = fc.integer({ min: Date.UTC(2024, 0), max: Date.UTC(2029, 0) })
/** Hours around the changes of 2026 in Berlin, New York and Lord Howe. */
const nearChange = fc
  .tuple(
    fc.constantFrom(
      ...[
        '2026-03-29T01:00Z',
        '2026-10-25T01:00Z',
        '2026-03-08T07:00Z',
        '2026-11-01T06:00Z',
        '2026-04-04T15:00Z',
      ],
    ),
    fc.integer({ min: -20 * HOUR_MS, max: 20 * HOUR_MS }),
  )
  .map(([time, offset]) => Date.parse(time) + offset)
const time = fc.oneof(uniform, nearChange)

describe('quiet hours', () => {
  it('contain exactly the minutes between both times, and end when the clock shows the second one', () => {
    fc.assert(
      fc.property(zone, minute, minute, time, (timeZone, from, until, now) => {
        fc.pre(from !== until)
        const shown = minuteOfDay(timeZone, now)
        const isQuiet = from < until ? shown >= from && shown < until : shown >= from || shown < until
        const end = quietUntil(`${text(from)}-${text(until)}`, timeZone, now)
        expect(end !== null).toBe(isQuiet)
        if (end === null) return
        expect(end).toBeGreaterThan(now)
        // Summer time that ends makes a night an hour longer.
        expect(end - now).toBeLessThanOrEqual(((until - shown + 1440) % 1440) * MINUTE_MS + HOUR_MS)
        // A clock that skips the end shows a later minute, which may be in the next quiet hours.
        if (minuteOfDay(timeZone, end) === until)
          expect(quietUntil(`${text(from)}-${text(until)}`, timeZone, end)).toBeNull()
      }),
      { numRuns: runs(2_000) },
    )
  })

  it.each([null, '', '22:00', '22:00-22:00', '24:00-07:00', '22:00-7:00', '22:00–07:00'])(
    'are none for %s',
    (hours) => {
      expect(quietUntil(hours, 'UTC', Date.UTC(2026, 0, 1, 23))).toBeNull()
      expect(hours === null || parseQuietHours(hours) === null).toBe(true)
    },
  )

  it('are none in a zone that does not exist', () => {
    expect(quietUntil('22:00-07:00', 'Mars/Olympus', Date.UTC(2026, 0, 1, 23))).toBeNull()
  })
})

describe('nextMinuteOfDay', () => {
  it('is within 25 hours, and its clock shows the minute unless the clock skips it', () => {
    fc.assert(
      fc.property(zone, minute, time, (timeZone, wanted, now) => {
        const next = nextMinuteOfDay(timeZone, wanted, now)
        expect(next).toBeGreaterThan(now)
        expect(next - now).toBeLessThanOrEqual(25 * HOUR_MS)
        const off = (minuteOfDay(timeZone, next) - wanted + 1440) % 1440
        expect([0, 30, 60]).toContain(off)
      }),
      { numRuns: runs(2_000) },
    )
  })
})

describe('the weekly summary', () => {
  it('is planned for the next Monday at nine by the clock of the zone', () => {
    fc.assert(
      fc.property(zone, time, (timeZone, now) => {
        const next = nextSummary(timeZone, now)
        const format = new Intl.DateTimeFormat('en', { timeZone, weekday: 'long' })
        expect([format.format(next), minuteOfDay(timeZone, next)]).toEqual(['Monday', 9 * 60])
        expect(next).toBeGreaterThan(now)
        expect(next - now).toBeLessThanOrEqual(7 * 24 * HOUR_MS + HOUR_MS)
      }),
      { numRuns: runs(800) },
    )
  })
})
