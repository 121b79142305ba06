/** Reading a member file takes time in proportion to its length. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { readEntries } from '../../src/audience/import/member-file.ts'
import { fileSource } from '../../src/cli/io.ts'
import { MEASURED } from '../support/measured.ts'
import { temporaryDirectory } from '../support/process.ts'

const MIB = 2 ** 20
/** The fastest of three, because other programs may slow down each of them. */
const RUNS = 3

async function readingMs(file: string): Promise<number> {
  const times: number[] = []
  for (let run = 0; run < RUNS; run += 1) {
    const startedAtMs = performance.now()
    const format = file.endsWith('.csv') ? 'csv' : 'ndjson'
    for await (const { value } of readEntries(fileSource(file), format)) expect(value).toBeInstanceOf(Error)
    times.push(performance.now() - startedAtMs)
  }
  return Math.min(...times)
}

// Four times the length takes 4 times as long. If the time grew with the square of the length, it would take 16 times as long.
it.each(['ndjson', 'csv'])(
  'reads a line of a file in %s that has no end in linear time',
  MEASURED,
  async (format) => {
    const file = (mebibytes: number) => {
      const path = join(temporaryDirectory(), `members.${format}`)
      const line =
        format === 'csv' ? `userId,tags\n"${'x'.repeat(mebibytes * MIB)}"` : 'x'.repeat(mebibytes * MIB)
      writeFileSync(path, line)
      return path
    }
    if (format === 'csv') {
      await expect(readingMs(file(16))).rejects.toThrow('line 2: the line is longer than')
      return
    }
    const [shorter, longer] = [await readingMs(file(8)), await readingMs(file(32))]
    expect(longer / shorter).toBeLessThan(10)
  },
)
