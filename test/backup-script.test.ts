/** deploy/backup.sh, with a stand-in for `oa-audience` that only makes the directory of the backup. */
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { temporaryDirectory } from './support/process.ts'

const SCRIPT = fileURLToPath(new URL('../deploy/backup.sh', import.meta.url))
const DAY_SECONDS = 86_400

function backUp(directory: string, body: string, keepDays: string): number | null {
  const program = join(temporaryDirectory(), 'oa-audience')
  writeFileSync(program, `#!/bin/sh\n${body}\n`, { mode: 0o755 })
  const env = { PATH: process.env.PATH, BACKUP_DIR: directory, KEEP_DAYS: keepDays, OA_AUDIENCE: program }
  return spawnSync('sh', [SCRIPT], { env, stdio: 'ignore' }).status
}

/** A directory with entries of the given ages in days. */
function directoryWith(ages: Record<string, number>): string {
  const directory = temporaryDirectory()
  for (const [name, days] of Object.entries(ages)) {
    const seconds = Date.now() / 1_000 - days * DAY_SECONDS
    mkdirSync(join(directory, name))
    utimesSync(join(directory, name), seconds, seconds)
  }
  return directory
}

const AGES = {
  '2026-10-01T031500Z': 14.1,
  '2026-10-02T031500Z': 13.9,
  '2026-10-03T031500Z.unfinished': 1.1,
  '2026-10-04T031500Z.unfinished': 0.9,
  'of-somebody-else': 99,
}

it('keeps backups for KEEP_DAYS, what a killed attempt has left for a day, and everything else', () => {
  const directory = directoryWith(AGES)
  expect(backUp(directory, 'mkdir "$2"', '14')).toBe(0)
  const [oldest, ...others] = readdirSync(directory).sort()
  expect([oldest, others.length]).toEqual(['2026-10-02T031500Z', 3])
  expect(others).toEqual(expect.arrayContaining(['2026-10-04T031500Z.unfinished', 'of-somebody-else']))
})

it('keeps the new backup even with KEEP_DAYS=0', () => {
  const directory = directoryWith({ '2026-10-02T031500Z': 1 })
  expect(backUp(directory, 'mkdir "$2"', '0')).toBe(0)
  expect(readdirSync(directory)).toEqual([expect.stringMatching(/^20.+Z$/)])
  expect(readdirSync(directory)).not.toContain('2026-10-02T031500Z')
})

it('deletes nothing but its own remains after a failure', () => {
  const directory = directoryWith(AGES)
  expect(backUp(directory, 'mkdir "$2"; exit 1', '0')).toBe(1)
  expect(readdirSync(directory).sort()).toEqual(Object.keys(AGES))
})

it.each(['fourteen', '-1'])('refuses KEEP_DAYS=%j before it makes a backup', (keepDays) => {
  const directory = temporaryDirectory()
  expect(backUp(directory, 'mkdir "$2"', keepDays)).toBe(1)
  expect(readdirSync(directory)).toEqual([])
})
