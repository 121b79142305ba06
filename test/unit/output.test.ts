/** Tables for people. */
import { expect, it, onTestFinished, vi } from 'vitest'
import { printMany } from '../../src/cli/output.ts'

it('aligns columns by the width of characters on a terminal', () => {
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined)
  onTestFinished(() => log.mockRestore())
  printMany(
    [
      { name: 'Corner Coffee', id: 1 },
      { name: 'コーヒー', id: 2 },
      { name: 'ร้านกาแฟที่', id: 3 },
      { name: '☕👩‍👩‍👧', id: 4 },
    ],
    false,
  )
  expect(log.mock.calls.flat()).toEqual([
    'name           id',
    'Corner Coffee  1',
    // 4 characters of 2 columns, and 5 spaces to the end of the column.
    `コーヒー${' '.repeat(5)}  2`,
    // 11 characters, 4 of which are above others.
    `ร้านกาแฟที่${' '.repeat(4 + 1)}  3`,
    `☕👩‍👩‍👧${' '.repeat(9)}  4`,
  ])
})
