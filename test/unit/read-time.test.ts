/** Times as operators give them for replays and exports. */
import { expect, it } from 'vitest'
import { readTime } from '../../src/http/times.ts'

const read = (text: string) => new Date(readTime('from', text)).toISOString()

it.each([
  ['2026-11-21', '2026-11-21T00:00:00.000Z'],
  ['2026-11-21T09:00+09:00', '2026-11-21T00:00:00.000Z'],
  ['2026-11-21T09:00:00.123456789Z', '2026-11-21T09:00:00.123Z'],
  // A plus sign that a client did not escape.
  ['2026-11-21T09:00 09:00', '2026-11-21T00:00:00.000Z'],
  ['2028-02-29', '2028-02-29T00:00:00.000Z'],
  ['2026-11-21T24:00Z', '2026-11-22T00:00:00.000Z'],
  ['0001-01-01', '1970-01-01T00:00:00.000Z'],
  ['0000-01-01T00:00+14:00', '1970-01-01T00:00:00.000Z'],
  ['9999-12-31T23:59-14:00', '9999-12-31T23:59:59.999Z'],
])('reads %s as %s', (text, time) => expect(read(text)).toBe(time))

it.each([
  ...['2026-02-30', '2026-13-01', '2026-11-21T24:01Z', '2026-12-31T23:59:60Z', '2026-11-21T09:00+24:00'],
  // without a zone
  ...['2026-11-21T09:00', '2026-11-21T09:00:00', '2026-11-21 09:00Z'],
  ...['+275760-09-13T00:00:00Z', '-000001-01-01', 'now', '', '1764000000', '2026-11-21Z', '2026-11-21\n'],
])('refuses %j', (text) =>
  expect(() => read(text)).toThrowError(expect.objectContaining({ code: 'invalid_input' })),
)
