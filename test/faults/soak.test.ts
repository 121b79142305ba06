/** The soak detects a fault, without which hours without a discrepancy prove nothing. The kinds of pressure, each for a few seconds. */
import { spawn } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { EmbeddedServer } from '../../src/postgres/embedded/server.ts'
import { openDatabase } from '../support/database.ts'
import { eventually, temporaryDirectory } from '../support/process.ts'

const SOAK = fileURLToPath(new URL('../../bench/soak/main.mjs', import.meta.url))

it('ends with 1 and names the members whose events count twice', async () => {
  const child = spawn(process.execPath, [SOAK, '--minutes', '1', '--output', temporaryDirectory()], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => void child.kill('SIGINT'))
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const errors = text(child.stderr)
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  const found = await eventually(
    async () => /database in (\S+)/.exec(output),
    (match) => match !== null,
  )
  const directory = found?.[1] as string
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))

  const { connection } = new EmbeddedServer(directory)
  const database = openDatabase(connection)
  // Several, because one may be erased before the check.
  const spoil = `update audience_member set event_count = event_count + 1
                  where id in (select id from audience_member order by id limit 5) returning user_id`
  const spoiled = await eventually(
    () => database.query<{ user_id: string }>(spoil),
    (rows) => rows.length === 5,
  )

  expect(await exited).toBe(1)
  expect(await errors).toMatch(/a book is wrong: \d+ discrepancies/)
  const named = spoiled.filter(({ user_id: userId }) => output.includes(userId))
  expect(named.length).toBeGreaterThan(0)
})

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
