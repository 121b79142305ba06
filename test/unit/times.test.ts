/** Times as the sources and the programs behind them write them. */
import { expect, it } from 'vitest'
import { parseTimeText } from '../../src/intake/event.ts'

it.each([
  ['2026-01-05T10:00:00Z', '2026-01-05T10:00:00.000Z'],
  ['2026-01-05T10:00:00.123+07:00', '2026-01-05T03:00:00.123Z'],
  ['2026-01-05T10:00:00+0700', '2026-01-05T03:00:00.000Z'],
  ['2026-01-05T10:00:00+07', '2026-01-05T03:00:00.000Z'],
  ['2026-01-05 10:00:00.5+00', '2026-01-05T10:00:00.500Z'],
  ['Mon, 05 Jan 2026 10:00:00 +0700', '2026-01-05T03:00:00.000Z'],
  // without a zone: UTC, wherever this runs
  ['2026-01-05', '2026-01-05T00:00:00.000Z'],
  ['2026-01-05 10:00:00', '2026-01-05T10:00:00.000Z'],
  ['2026-01-05T10:00', '2026-01-05T10:00:00.000Z'],
  ['01-05-2026', '2026-01-05T00:00:00.000Z'],
])('%s is %s', (text, time) => {
  const zone = process.env.TZ
  process.env.TZ = 'Asia/Tokyo'
  expect(new Date(parseTimeText(text)).toISOString()).toBe(time)
  process.env.TZ = zone ?? ''
})

it.each(['', 'yesterday', '2026-13-01', '+07', ':00+07'])('"%s" is none', (text) => {
  expect(parseTimeText(text)).toBeNaN()
})
