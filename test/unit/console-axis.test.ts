/** The time axis of the console's charts, in any zone and with any number of points. */
import { expect, it } from 'vitest'
import {
  countLabelsOf,
  countRange,
  hoursUntilNow,
  labelsOf,
  lonePoints,
  spanOf,
  ticksOf,
} from '../../web/parts/axis.ts'
import { PERIODS, periodOf } from '../../web/parts/report-period.ts'

const at = (iso: string) => Date.parse(iso) / 1000
const hoursFrom = (iso: string, count: number) => Array.from({ length: count }, (_, i) => at(iso) + i * 3_600)

/** What a reader sees. Spaces differ between versions of ICU. */
function shown(times: number[], unit: 'hour' | 'day', max: number, timeZone?: string): string[] {
  const labels = labelsOf(ticksOf(times, unit, max, timeZone), unit, 'en', { timeZone })
  return labels.map((label) => label.replaceAll(/\s/g, ' '))
}

it('the hours of a chart are the newest ones if more are stored than it shows', () => {
  const hours = hoursUntilNow(hoursFrom('2026-01-01T00:00Z', 200), Date.parse('2026-01-01T00:00Z'), 168)
  expect(hours).toEqual(hoursFrom('2026-01-02T08:00Z', 168))
})

it('labels of hours are those of the zone, at midnight if there is a week of them', () => {
  const week = hoursFrom('2026-01-01T00:00Z', 168)
  expect(shown(week, 'hour', 8, 'America/New_York').slice(0, 2)).toEqual(['Jan 1, 12 AM', 'Jan 2, 12 AM'])
  expect(shown(week, 'hour', 3, 'UTC')).toEqual(['Jan 1, 12 AM', 'Jan 4, 12 AM', 'Jan 7, 12 AM'])
})

it('labels of hours differ when clocks are set back, and continue when they are set forward', () => {
  expect(shown(hoursFrom('2026-11-01T04:00Z', 4), 'hour', 6, 'America/New_York')).toEqual([
    'Nov 1, 12 AM EDT',
    'Nov 1, 1 AM EDT',
    'Nov 1, 1 AM EST',
    'Nov 1, 2 AM EST',
  ])
  expect(shown(hoursFrom('2026-03-08T05:00Z', 4), 'hour', 6, 'America/New_York')).toEqual([
    'Mar 8, 12 AM',
    'Mar 8, 1 AM',
    'Mar 8, 3 AM',
    'Mar 8, 4 AM',
  ])
})

it('labels of hours are at least one, at most as many as fit, and never repeated, for every number of hours', () => {
  for (const zone of ['UTC', 'America/New_York', 'Asia/Kolkata', 'Africa/Cairo', 'Pacific/Chatham']) {
    for (const start of ['2026-01-01T00:00Z', '2026-04-23T12:00Z', '2026-10-30T00:00Z']) {
      for (const count of [1, 2, 3, 5, 9, 13, 25, 30, 49, 100, 168]) {
        for (const max of [0, 3, 7]) {
          const labels = shown(hoursFrom(start, count), 'hour', max, zone)
          expect(labels.length).toBeGreaterThan(0)
          expect(labels.length).toBeLessThanOrEqual(Math.max(2, max))
          expect(new Set(labels).size).toBe(labels.length)
        }
      }
    }
  }
})

it('bars begin at zero and may go below, with room for half a bar at each end and labels without a sign', () => {
  expect(countRange(-20, 100)).toEqual([-22, 110])
  expect(countRange(3, 100)).toEqual([0, 110])
  expect(spanOf(86_400, 172_800, 'day')).toEqual([43_200, 216_000])
  expect(countLabelsOf([-20, 0, 20], 'en')).toEqual(['20', '0', '20'])
})

it('a week begins on Monday, and a period that lasts ends today', () => {
  const days = { from: '2026-01-01', to: '2026-01-02' }
  const periods = (today: string) =>
    PERIODS.map((name) => Object.values(periodOf(name, today, days)).join(' '))
  expect(periods('2026-03-01')).toEqual([
    '2026-02-23 2026-03-01',
    '2026-02-16 2026-02-22',
    '2026-03-01 2026-03-01',
    '2026-02-01 2026-02-28',
    '2026-02-02 2026-03-01',
    '2026-01-01 2026-01-02',
  ])
  expect(periods('2026-03-02')[0]).toBe('2026-03-02 2026-03-02')
})

it('the days of a chart get a point where no line leads to a neighbour', () => {
  expect(lonePoints([5])).toEqual([0])
  expect(lonePoints([5, null, 6, 7, null, 0])).toEqual([0, 5])
  expect(lonePoints([null, 1, 2, null])).toEqual([])
  expect(lonePoints([])).toEqual([])
})

it('labels of counts are short unless that would repeat one', () => {
  expect(countLabelsOf([0, 500, 1_000, 1_500], 'en')).toEqual(['0', '500', '1K', '1.5K'])
  expect(countLabelsOf([1_002, 1_004, 1_006], 'en')).toEqual(['1,002', '1,004', '1,006'])
  expect(countLabelsOf([1_000, 1_250, 1_500], 'en')).toEqual(['1K', '1.25K', '1.5K'])
  expect(countLabelsOf([10_200, 10_225, 10_250], 'en')).toEqual(['10,200', '10,225', '10,250'])
})
