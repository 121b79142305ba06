/** The kinds of pressure of `npm run soak -- --pressure`, each for a few seconds. */

import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryDirectory } from '../support/process.ts'

const SOAK = fileURLToPath(new URL('../../bench/soak/main.mjs', import.meta.url))
/** One stall of a machine with two busy cores. */
const STALL_MS = 1_000
/** LINE disconnects afterwards. Two flushes may wait 600 ms each for a lock of the first account, once. */
const PATIENCE_MS = 2_000

interface Outcome {
  name: string
  isFree: boolean
  waitsOnce: boolean
  failedAttempts: [first: number, other: number]
  idleMs: number
  otherMs: number
  normalMs: number | null
  wrong: string[]
}

it('keeps exact books and the other account fast under each kind of pressure, and recovers within 30 s', async () => {
  const directory = temporaryDirectory()
  const child = spawn(process.execPath, [SOAK, '--pressure', '--minutes', '1.5', '--output', directory], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  onTestFinished(() => void child.kill('SIGINT'))
  const errors = text(child.stderr)
  await new Promise((resolve) => child.once('exit', resolve))
  expect(await errors).toBe('')

  const outcomes = JSON.parse(readFileSync(join(directory, 'pressure.json'), 'utf8')) as Outcome[]
  expect(outcomes).toHaveLength(9)
  for (const { name, isFree, waitsOnce, failedAttempts, idleMs, otherMs, normalMs, wrong } of outcomes) {
    expect(wrong, name).toEqual([])
    expect(normalMs, name).not.toBeNull()
    if (!isFree) continue
    expect(failedAttempts[1], name).toBe(0)
    expect(otherMs, name).toBeLessThan(Math.max(5 * idleMs, waitsOnce ? PATIENCE_MS : STALL_MS))
  }
})
