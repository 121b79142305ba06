/** The options of the soak. CI runs two minutes of it. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const SOAK = fileURLToPath(new URL('../bench/soak/main.mjs', import.meta.url))

function soak(...args: string[]) {
  return spawnSync(process.execPath, [SOAK, ...args], { encoding: 'utf8' })
}

describe('npm run soak', () => {
  it('prints its options', () => {
    const { status, stdout } = soak('--help')
    expect(status).toBe(0)
    for (const option of ['--hours', '--minutes', '--seed', '--output']) expect(stdout).toContain(option)
  })

  it.each([
    [['--hours', 'two'], '--hours must be a number from 0.017 to 168'],
    [['--minutes', '0'], '--minutes must be a number from 1 to 10080'],
    [['--hours', '1', '--minutes', '2'], '--hours and --minutes exclude each other'],
    [['--seed', '1.5'], '--seed must be an integer'],
    [['--rate', '100'], '--rate must be max'],
    [['--days', '1'], "Unknown option '--days'"],
    [['forever'], "Unexpected argument 'forever'"],
  ])('refuses %j with one line', (args, reason) => {
    const { status, stdout, stderr } = soak(...args)
    expect(status).toBe(2)
    expect(stdout).toBe('')
    expect(stderr.trimEnd().split('\n')).toEqual([expect.stringContaining(reason)])
  })
})
