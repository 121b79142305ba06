/** The syntax of the erasure ledger. */
import { appendFileSync } from 'node:fs'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import {
  LedgerDamage,
  type LedgerErasure,
  lineOf,
  listLedgerFiles,
  parseLine,
  readLedgerFile,
} from '../../src/audience/erasure/ledger-files.ts'
import { INT64_MAX, INT64_MIN } from '../../src/http/path-id.ts'
import { temporaryDirectory, writeTemporaryFile } from '../support/process.ts'
import { runs } from '../support/runs.ts'

const id = fc.bigInt({ min: INT64_MIN, max: INT64_MAX })
const erasure = fc.record({
  accountId: id,
  memberId: fc.option(id),
  hash: fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex')),
  erasedAt: fc.integer({ min: Date.UTC(0, 0), max: Date.UTC(9999, 0) }),
})
const erasures = fc.sample(erasure, 3) as [LedgerErasure, LedgerErasure, LedgerErasure]
const [one, two, three] = erasures.map((each) => `${lineOf(each)}\n`) as [string, string, string]

async function read(path: string, damage = new LedgerDamage()) {
  const entries = []
  for await (const entry of readLedgerFile(path, damage)) entries.push(entry)
  return entries
}

/** Writes the text as a file of a ledger. Returns its path. */
function ledgerFile(text: string): string {
  const path = writeTemporaryFile('one.ledger', text)
  return path
}

it('a line of the erasure ledger is read as it was written, and with the number that release 0.3.0 wrote before it', () => {
  fc.assert(
    fc.property(erasure, fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), (written, number) => {
      expect(lineOf(written).length).toBeLessThan(149)
      expect(parseLine(lineOf(written))).toEqual(written)
      expect(parseLine(`${number} ${lineOf(written)}`)).toEqual(written)
    }),
    { numRuns: runs(1_000) },
  )
})

it('a line of the erasure ledger is refused if a character of it is missing, added or different', () => {
  fc.assert(
    fc.property(erasure, fc.nat(), fc.constantFrom('', 'x', '  ', '\r', '０'), (written, place, inserted) => {
      const text = lineOf(written)
      const at = place % text.length
      const changed = text.slice(0, at) + inserted + text.slice(at + 1)
      // A missing digit may leave another valid id.
      const found = parseLine(changed)
      if (found !== null) expect(lineOf(found)).toBe(changed)
    }),
    { numRuns: runs(1_000) },
  )
})

it.each([
  ['a date that does not exist', '7 5 HASH 2026-02-30T00:00:00.000Z'],
  ['an account beyond 64 bits', '9223372036854775808 5 HASH 2026-02-03T00:00:00.000Z'],
  ['a member beyond 64 bits', '7 9223372036854775808 HASH 2026-02-03T00:00:00.000Z'],
  ['a leading zero', '07 5 HASH 2026-02-03T00:00:00.000Z'],
])('a line of the erasure ledger is refused with %s', (_, text) => {
  expect(parseLine(text.replace('HASH', 'a'.repeat(64)))).toBeNull()
})

it('a file of the erasure ledger has all lines of concurrent appends in their order', async () => {
  const directory = temporaryDirectory()
  const ledger = new ErasureLedger(directory)
  const written = fc.sample(erasure, 100)
  await Promise.all(written.map((each) => ledger.append([each])))
  const [path = '', ...others] = await listLedgerFiles(directory)
  expect(others).toEqual([])
  expect(await read(path)).toEqual(written)
})

it('a file of the erasure ledger may end with a part of a line, which is ignored', async () => {
  const path = ledgerFile(one + two.slice(0, 70))
  expect(await read(path)).toEqual([erasures[0]])
  appendFileSync(path, '\0'.repeat(4096))
  expect(await read(path)).toEqual([erasures[0]])
})

it.each(['', '7 5 ', 'oa-audience erasure ledger 1\n'])(
  'a file of the erasure ledger may have no line: %j',
  async (text) => {
    const damage = new LedgerDamage()
    expect([await read(ledgerFile(text), damage), damage.unreadable]).toEqual([[], 0])
  },
)

it.each([
  ['another header', `oa-audience erasure ledger 2\n${one}`, [erasures[0]], 1],
  ['a torn line in the middle', `${one}${two.slice(9, 80)}\n${three}`, [erasures[0], erasures[2]], 2],
  ['an end of 2 MiB without a line feed', one + '\0'.repeat(2 * 1024 * 1024), [erasures[0]], 2],
])('a file of the erasure ledger is read with %s, which is counted', async (_, text, entries, line) => {
  const path = ledgerFile(text)
  const damage = new LedgerDamage()
  expect(await read(path, damage)).toEqual(entries)
  expect(damage.unreadable).toBeGreaterThan(0)
  expect(damage.first).toBe(`${path}, line ${line}`)
})

it('a revocation is read as it was written, and with the number that release 0.3.0 wrote before it', () => {
  const revocation = { kind: 'client-secret', id: 12n, revokedAt: Date.UTC(2026, 10, 23) }
  const text = 'client-secret 12 2026-11-23T00:00:00.000Z'
  expect(lineOf(revocation)).toBe(text)
  for (const line of [text, `7 ${text}`]) expect(parseLine(line)).toEqual(revocation)
  for (const other of ['', `${text} `, text.replace('12', 'Ann'), text.replace('client', 'Ann Lee')])
    expect(parseLine(other)).toBeNull()
})
