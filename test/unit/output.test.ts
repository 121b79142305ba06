/** Tables for people. */
import { expect, it, onTestFinished, vi } from 'vitest'
import { io, printError, printMany } from '../../src/cli/io.ts'
import { createProgram } from '../../src/cli/run.ts'

it('aligns columns by the width of characters on a terminal', () => {
  const write = vi.spyOn(io.stdout, 'write').mockReturnValue(true)
  onTestFinished(() => write.mockRestore())
  printMany([
    { name: 'Corner Coffee', id: 1 },
    { name: 'コーヒー', id: 2 },
    { name: 'ร้านกาแฟที่', id: 3 },
    { name: '☕👩‍👩‍👧', id: 4 },
  ])
  expect(write.mock.calls.flat().join('').split('\n').slice(0, -1)).toEqual([
    'name           id',
    'Corner Coffee  1',
    // 4 characters of 2 columns, and 5 spaces to the end of the column.
    `コーヒー${' '.repeat(5)}  2`,
    // 11 characters, 4 of which are above others.
    `ร้านกาแฟที่${' '.repeat(4 + 1)}  3`,
    `☕👩‍👩‍👧${' '.repeat(9)}  4`,
  ])
})

it('names every command as it works where npm runs the program, and leaves other sentences as they are', async () => {
  const write = vi.spyOn(io.stderr, 'write').mockReturnValue(true)
  onTestFinished(() => void vi.unstubAllEnvs())
  onTestFinished(() => write.mockRestore())
  const shown = (text: string, npmCommand: string | undefined) => {
    vi.stubEnv('npm_command', npmCommand)
    printError(text)
    return write.mock.lastCall?.[0]
  }
  const { commands } = await createProgram(() => true)
  for (const name of commands.map((command) => command.name()).filter((name) => name !== 'mcp')) {
    const text = `Run "oa-audience ${name}".`
    expect(shown(text, 'exec')).toBe(`Run "npx --no oa-audience ${name}".\n`)
    expect(shown(text, undefined)).toBe(`${text}\n`)
  }
  expect(shown('oa-audience needs version 14', 'exec')).toBe('oa-audience needs version 14\n')
})
