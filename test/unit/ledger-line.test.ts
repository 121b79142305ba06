/** The syntax of the erasure ledger. */
import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  ERASURES,
  LEDGER_LINE_MAX_BYTES,
  LedgerDamage,
  type LedgerErasure,
  listLedgerFiles,
  REVOCATIONS,
  readLastLines as readEnd,
  readLedgerFile,
} from '../../src/audience/erasure/ledger-files.ts'
import { LedgerWriter } from '../../src/audience/erasure/ledger-writer.ts'
import { INT64_MAX, INT64_MIN } from '../../src/http/path-id.ts'
import { temporaryDirectory } from '../support/process.ts'
import { runs } from '../support/runs.ts'

const id = fc.bigInt({ min: INT64_MIN, max: INT64_MAX })
const erasure = fc.record({
  accountId: id,
  memberId: fc.option(id),
  hash: fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex')),
  erasedAt: fc.integer({ min: Date.UTC(0, 0), max: Date.UTC(9999, 0) }),
})
const oneErasure = (): LedgerErasure => fc.sample(erasure, 1)[0] as LedgerErasure
const lineOf = (number: number) => ERASURES.format({ ...oneErasure(), number })

async function linesOf(path: string, damage = new LedgerDamage()) {
  const lines = []
  for await (const line of readLedgerFile(path, damage, ERASURES)) lines.push(line)
  return lines
}

const readLastLines = (path: string, count: number, damage = new LedgerDamage()) =>
  readEnd(path, count, damage)

/** Writes the text as a file of a ledger. Returns its path. */
function ledgerFile(text: string): string {
  const path = join(temporaryDirectory(), 'one.ledger')
  writeFileSync(path, text)
  return path
}

describe('a line of the erasure ledger', () => {
  it('is read as it was written', () => {
    fc.assert(
      fc.property(erasure, fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), (written, number) => {
        const text = ERASURES.format({ ...written, number })
        expect(text.length).toBeLessThanOrEqual(LEDGER_LINE_MAX_BYTES)
        expect(ERASURES.parse(text.slice(0, -1))).toEqual({ ...written, number })
      }),
      { numRuns: runs(1_000) },
    )
  })

  it('is refused if a character of it is missing, added or different', () => {
    fc.assert(
      fc.property(
        erasure,
        fc.nat(),
        fc.constantFrom('', 'x', '  ', '\r', '０'),
        (written, place, inserted) => {
          const text = ERASURES.format({ ...written, number: 1 }).slice(0, -1)
          const at = place % text.length
          const changed = text.slice(0, at) + inserted + text.slice(at + 1)
          // A missing digit may leave another valid id.
          const read = ERASURES.parse(changed)
          if (read !== null) expect(ERASURES.format(read)).toBe(`${changed}\n`)
          else expect(read).toBeNull()
        },
      ),
      { numRuns: runs(1_000) },
    )
  })

  it.each([
    ['a date that does not exist', '1 7 5 HASH 2026-02-30T00:00:00.000Z'],
    ['an account beyond 64 bits', '1 9223372036854775808 5 HASH 2026-02-03T00:00:00.000Z'],
    ['a member beyond 64 bits', '1 7 9223372036854775808 HASH 2026-02-03T00:00:00.000Z'],
    ['a leading zero', '1 07 5 HASH 2026-02-03T00:00:00.000Z'],
  ])('is refused with %s', (_, text) => {
    expect(ERASURES.parse(text.replace('HASH', 'a'.repeat(64)))).toBeNull()
  })
})

describe('a file of the erasure ledger', () => {
  it('has all lines of concurrent appends, numbered from 1', async () => {
    const directory = temporaryDirectory()
    const writer = new LedgerWriter(directory, ERASURES)
    const written = fc.sample(erasure, 100)
    await Promise.all(written.map((each) => writer.append([each])))
    await writer.close()
    const [path = '', ...others] = await listLedgerFiles(directory)
    expect(others).toEqual([])
    const all = written.map((each, at) => ({ ...each, number: at + 1 }))
    expect(await linesOf(path)).toEqual(all)
    expect(await readLastLines(path, 10)).toEqual(all.slice(-10))
  })

  it('may end with a part of a line, which is ignored', async () => {
    const path = ledgerFile(ERASURES.header + lineOf(1) + lineOf(2).slice(0, 70))
    expect((await linesOf(path)).map(({ number }) => number)).toEqual([1])
    expect((await readLastLines(path, 1_000)).map(({ number }) => number)).toEqual([1])
    expect((await readLastLines(path, 1)).map(({ number }) => number)).toEqual([1])
    appendFileSync(path, '\0'.repeat(4096))
    expect([await linesOf(path), await readLastLines(path, 1)]).toEqual([
      [expect.anything()],
      [expect.anything()],
    ])
  })

  it.each(['', 'oa-audience eras', ERASURES.header])('may have no line: %j', async (text) => {
    const path = ledgerFile(text)
    expect([await linesOf(path), await readLastLines(path, 1_000)]).toEqual([[], []])
  })

  it.each([
    ['another header', 'oa-audience erasure ledger 2\n', [], ', line 1', 0],
    [
      'a torn line in the middle',
      `${ERASURES.header}${lineOf(1)}${lineOf(2).slice(9, 80)}\n${lineOf(3)}`,
      ...[[1, 3], ', line 3', 0],
    ],
    ['a missing line', ERASURES.header + lineOf(1) + lineOf(3), [1, 3], '', 1],
    ['no header', lineOf(1) + lineOf(2), [1, 2], '', 0],
  ] as Array<[string, string, number[], string, number]>)(
    'is read with %s, which is counted',
    async (_, text, numbers, place, missing) => {
      const path = ledgerFile(text)
      const [all, atEnd] = [new LedgerDamage(), new LedgerDamage()]
      expect((await linesOf(path, all)).map(({ number }) => number)).toEqual(numbers)
      expect({ ...all }).toEqual({ unreadable: place === '' ? 0 : 1, missing, first: place && path + place })
      expect((await readLastLines(path, 1_000, atEnd)).map(({ number }) => number)).toEqual(numbers)
      expect({ ...atEnd }).toEqual({ unreadable: place === '' ? 0 : 1, missing: 0, first: place && path })
    },
  )
})

it('a revocation is read as it was written', () => {
  const line = { number: 7, kind: 'client-secret', id: 12n, revokedAt: Date.UTC(2026, 10, 23) }
  const text = '7 client-secret 12 2026-11-23T00:00:00.000Z'
  expect([REVOCATIONS.format(line), REVOCATIONS.parse(text)]).toEqual([`${text}\n`, line])
  for (const other of ['', `${text} `, text.replace('12', 'Ann'), text.replace('client', 'Ann Lee')])
    expect(REVOCATIONS.parse(other)).toBeNull()
})
