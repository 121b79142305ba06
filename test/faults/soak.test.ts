/** The soak detects a fault. Without this test, hours without a discrepancy would prove nothing. */

import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
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
