/** The syntax of the erasure ledger. */
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  listLedgerFiles,
  readLastLines,
  readLedgerFile,
  requireLedger,
} from '../../src/audience/ledger-files.ts'
import {
  formatLedgerLine,
  LEDGER_HEADER,
  LEDGER_LINE_MAX_BYTES,
  type LedgerErasure,
  parseLedgerLine,
} from '../../src/audience/ledger-line.ts'
import { LedgerWriter } from '../../src/audience/ledger-writer.ts'
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
const lineOf = (number: number) => formatLedgerLine({ ...oneErasure(), number })

async function linesOf(path: string) {
  const lines = []
  for await (const line of readLedgerFile(path)) lines.push(line)
  return lines
}

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
        const text = formatLedgerLine({ ...written, number })
        expect(text.length).toBeLessThanOrEqual(LEDGER_LINE_MAX_BYTES)
        expect(parseLedgerLine(text.slice(0, -1))).toEqual({ ...written, number })
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
          const text = formatLedgerLine({ ...written, number: 1 }).slice(0, -1)
          const at = place % text.length
          const changed = text.slice(0, at) + inserted + text.slice(at + 1)
          // A missing digit may leave another valid id.
          const read = parseLedgerLine(changed)
          if (read !== null) expect(formatLedgerLine(read)).toBe(`${changed}\n`)
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
    expect(parseLedgerLine(text.replace('HASH', 'a'.repeat(64)))).toBeNull()
  })
})

describe('a file of the erasure ledger', () => {
  it('has all lines of concurrent appends, numbered from 1', async () => {
    const directory = temporaryDirectory()
    const writer = new LedgerWriter(directory)
    const written = fc.sample(erasure, 100)
    await Promise.all(written.map((each) => writer.append([each])))
    await writer.close()
    const [path = '', ...others] = await listLedgerFiles(directory)
    expect(others).toEqual([])
    expect(await linesOf(path)).toEqual(written.map((each, at) => ({ ...each, number: at + 1 })))
    expect(await readLastLines(path, 10)).toEqual((await linesOf(path)).slice(-10))
  })

  it('is a new one after a write has failed', async () => {
    const directory = join(temporaryDirectory(), 'ledger')
    const writer = new LedgerWriter(directory)
    await expect(writer.append([oneErasure()])).rejects.toThrow('ERASURE_LEDGER cannot be written (ENOENT)')
    mkdirSync(directory)
    await writer.append([oneErasure()])
    await writer.close()
    expect(await listLedgerFiles(directory)).toHaveLength(1)
  })

  it('may end with a part of a line, which is ignored', async () => {
    const path = ledgerFile(LEDGER_HEADER + lineOf(1) + lineOf(2).slice(0, 70))
    expect((await linesOf(path)).map(({ number }) => number)).toEqual([1])
    expect((await readLastLines(path, 1_000)).map(({ number }) => number)).toEqual([1])
    expect((await readLastLines(path, 1)).map(({ number }) => number)).toEqual([1])
    appendFileSync(path, '\0'.repeat(4096))
    expect([await linesOf(path), await readLastLines(path, 1)]).toEqual([
      [expect.anything()],
      [expect.anything()],
    ])
  })

  it.each(['', 'oa-audience eras', LEDGER_HEADER])('may have no line: %j', async (text) => {
    const path = ledgerFile(text)
    expect([await linesOf(path), await readLastLines(path, 1_000)]).toEqual([[], []])
  })

  it.each([
    ['another header', 1, 'oa-audience erasure ledger 2\n'],
    ['a torn line in the middle', 3, `${LEDGER_HEADER}${lineOf(1)}${lineOf(2).slice(9, 80)}\n${lineOf(3)}`],
    ['a missing line', 3, LEDGER_HEADER + lineOf(1) + lineOf(3)],
  ])('is refused with %s, by its name and the number of the line', async (_, number, text) => {
    const path = ledgerFile(text)
    const message = `${path}, line ${number} is not a line of an erasure ledger.`
    await expect(linesOf(path)).rejects.toThrow(message)
    await expect(readLastLines(path, 1_000)).rejects.toThrow(message)
  })

  it('is read from its end without reading the earlier lines', async () => {
    const lines = Array.from({ length: 500 }, (_, at) => lineOf(at + 1))
    const path = ledgerFile(`${LEDGER_HEADER}damaged\n${lines.join('')}`)
    expect((await readLastLines(path, 20)).map(({ number }) => number)).toEqual(
      Array.from({ length: 20 }, (_, at) => 481 + at),
    )
    expect(readFileSync(path, 'utf8')).toContain('damaged')
  })
})

it.each(['missing', 'a file'])('a ledger directory that is %s is refused in one line', async (state) => {
  const path = join(temporaryDirectory(), 'ledger')
  if (state === 'a file') writeFileSync(path, '')
  await expect(requireLedger(path)).rejects.toThrow(
    /^ERASURE_LEDGER \S+ cannot be used \((ENOENT|ENOTDIR)\)\. [^\n]+$/,
  )
})
