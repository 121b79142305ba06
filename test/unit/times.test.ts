/** Times as the sources and the programs behind them write them. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { parseTimeText } from '../../src/intake/event-fields.ts'

beforeAll(() => void vi.stubEnv('TZ', 'Asia/Tokyo'))
afterAll(() => void vi.unstubAllEnvs())

it.each([
  ['2026-01-05T10:00:00Z', '2026-01-05T10:00:00.000Z'],
  ['2026-01-05T10:00:00.123+07:00', '2026-01-05T03:00:00.123Z'],
  ['2026-01-05T10:00:00+0700', '2026-01-05T03:00:00.000Z'],
  ['2026-01-05T10:00:00+07', '2026-01-05T03:00:00.000Z'],
  ['2026-01-05 10:00:00.5+00', '2026-01-05T10:00:00.500Z'],
  ['Mon, 05 Jan 2026 10:00:00 +0700', '2026-01-05T03:00:00.000Z'],
  // Without a zone, in UTC.
  ['2026-01-05', '2026-01-05T00:00:00.000Z'],
  ['2026-01-05 10:00:00', '2026-01-05T10:00:00.000Z'],
  ['2026-01-05T10:00', '2026-01-05T10:00:00.000Z'],
  ['01-05-2026', '2026-01-05T00:00:00.000Z'],
])('parseTimeText reads %s as %s in any zone of the machine', (text, time) => {
  expect(new Date(parseTimeText(text)).toISOString()).toBe(time)
})

it.each(['', 'yesterday', '2026-13-01', '+07', ':00+07'])(
  'parseTimeText returns NaN for %j, which is not a time',
  (text) => {
    expect(parseTimeText(text)).toBeNaN()
  },
)
