/** Refusals of `oa-audience backup` and `restore`, and deploy/backup.sh. test/faults/backup.test.ts has complete backups. */
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { findBinaries } from '../../src/postgres/embedded/cluster.ts'
import {
  checksumOf,
  createBackupDirectory,
  dataOf,
  type Manifest,
  writeManifest,
} from '../../src/upkeep/backup/files.ts'
import { runCommand } from '../support/command.ts'
import { createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { runProgramAsync, temporaryDirectory } from '../support/process.ts'

const MINIMAL: Manifest = {
  kind: 'base',
  version: '0.2.0',
  postgresMajor: Number(findBinaries().major),
  backupAt: '2026-01-01T00:00:00.000000Z',
  changeLimit: '3',
  directories: [],
  files: [],
}

/** A directory that looks like a backup, with one file. */
async function makeBackup(changes: Partial<Manifest> = {}) {
  const directory = join(temporaryDirectory(), 'backup')
  createBackupDirectory(directory)
  const file = join(dataOf(directory), 'PG_VERSION')
  writeFileSync(file, 'eighteen')
  const checksum = await checksumOf(file)
  await writeManifest(directory, { ...MINIMAL, files: [{ path: 'PG_VERSION', ...checksum }], ...changes })
  const dataDir = join(temporaryDirectory(), 'data')
  const restore = (env: Record<string, string> = { DATA_DIR: dataDir }) =>
    runCommand(['restore', directory], env)
  return { directory, file, dataDir, restore, manifest: join(directory, 'manifest.json') }
}

const lastLine = (text: string) => text.trim().split('\n').at(-1)

it('restore refuses a backup with a flipped byte, before it writes anything', async () => {
  const { file, dataDir, restore } = await makeBackup()
  writeFileSync(file, 'eightean')
  const { status, stderr } = await restore()
  expect([status, lastLine(stderr)]).toEqual([
    1,
    `oa-audience: ${file} is damaged: its checksum does not match. Use another backup.`,
  ])
  expect(() => readdirSync(dataDir)).toThrow('ENOENT')
})

it('restore refuses a backup without one of its files', async () => {
  const { file, restore } = await makeBackup()
  rmSync(file)
  expect(lastLine((await restore()).stderr)).toBe(
    `oa-audience: ${file} is missing from the backup. Use another backup.`,
  )
})

it('restore refuses a manifest that was changed, or that names files elsewhere', async () => {
  const { manifest, restore } = await makeBackup()
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace('2026-01-01', '2026-01-02'))
  const expected = /^oa-audience: .+manifest\.json is damaged/
  expect((await restore()).stderr).toMatch(expected)
  for (const text of ['{', '', 'null', '[]', '"text"']) {
    writeFileSync(manifest, text)
    expect((await restore()).stderr).toMatch(expected)
  }
  const incomplete = await makeBackup({ directories: undefined as unknown as string[] })
  expect((await incomplete.restore()).stderr).toMatch(expected)
  const elsewhere = await makeBackup({ files: [{ path: '../../x', size: 0, sha256: '' }] })
  expect((await elsewhere.restore()).stderr).toMatch(expected)
})

it('restore refuses a backup that was interrupted', async () => {
  const { directory, manifest, restore } = await makeBackup()
  rmSync(manifest)
  expect((await restore()).stderr).toBe(
    `oa-audience: ${directory} has no manifest.json: it is not a backup, or the backup was interrupted.\n`,
  )
})

it('restore refuses a backup of another major version, with a future time, or for another kind of database', async () => {
  const older = await makeBackup({ postgresMajor: 17 })
  expect((await older.restore()).stderr).toContain('the backup is of PostgreSQL 17, but this version')
  const future = await makeBackup({ backupAt: '2999-01-01T00:00:00.000000Z' })
  expect((await future.restore()).stderr).toContain('Set the clock of this machine')
  const { env } = await createTestDatabase()
  const base = await makeBackup()
  expect((await base.restore(env)).stderr).toContain('Unset DATABASE_URL to restore it into DATA_DIR.')
  const dump = await makeBackup({ kind: 'dump' })
  expect((await dump.restore()).stderr).toContain('Set DATABASE_URL to an empty database')
})

it('restore refuses a DATA_DIR with a database, and a database that is not empty', async () => {
  const { dataDir, restore } = await makeBackup()
  createBackupDirectory(join(dataDir, 'postgres'))
  expect((await restore()).stderr).toContain(`${join(dataDir, 'postgres')} exists. Stop the service`)
  const { env } = await createTestDatabase()
  const dump = await makeBackup({ kind: 'dump' })
  expect(lastLine((await dump.restore(env)).stderr)).toBe(
    'oa-audience: the schema public of DATABASE_URL is not empty. Create an empty database and set DATABASE_URL to it.',
  )
})

it('backup refuses a directory with contents, and a missing pg_dump', async () => {
  const { env } = await createTestDatabase()
  const directory = temporaryDirectory()
  const bin = temporaryDirectory()
  const backUp = () =>
    runProgramAsync(['backup', join(directory, 'new')], { ...env, PATH: `${bin}` }).then(
      ({ stderr }) => stderr,
    )
  expect(await backUp()).toMatch(
    /^oa-audience: pg_dump is not in the PATH\. Install .+ docs\/operate\/backup\.md .+\n$/,
  )
  expect(readdirSync(directory)).toEqual([])
  writeFileSync(join(bin, 'pg_dump'), '#!/bin/sh\necho "pg_dump (PostgreSQL) 99"\n', { mode: 0o755 })
  writeFileSync(join(directory, 'file'), '')
  const refused = await runProgramAsync(['backup', directory], { ...env, PATH: bin })
  expect(refused.stderr).toBe(
    `oa-audience: ${directory} is not empty. Choose a new directory for each backup.\n`,
  )
})

it('commands and the service refuse a database whose restore was interrupted', async () => {
  const { database, env } = await createTestDatabase()
  await load(database, 'create table unfinished_restore ()')
  const expected = /^oa-audience: a restore into this database was interrupted or still runs\. .+\n$/
  for (const command of [['organizations', 'list'], ['migrate']])
    expect((await runCommand(command, env)).stderr).toMatch(expected)
  const service = await runProgramAsync(['serve'], env)
  expect(service.status).toBe(1)
  expect(service.stderr).toMatch(/a restore into this database was interrupted/)
})

const SCRIPT = fileURLToPath(new URL('../../deploy/backup.sh', import.meta.url))
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

it('the script keeps backups for KEEP_DAYS, what a killed attempt has left for a day, and everything else', () => {
  const directory = directoryWith(AGES)
  expect(backUp(directory, 'mkdir "$2"', '14')).toBe(0)
  const [oldest, ...others] = readdirSync(directory).sort()
  expect([oldest, others.length]).toEqual(['2026-10-02T031500Z', 3])
  expect(others).toEqual(expect.arrayContaining(['2026-10-04T031500Z.unfinished', 'of-somebody-else']))
})

it('the script deletes nothing but its own remains after a failure', () => {
  const directory = directoryWith(AGES)
  expect(backUp(directory, 'mkdir "$2"; exit 1', '0')).toBe(1)
  expect(readdirSync(directory).sort()).toEqual(Object.keys(AGES))
})

it.each(['fourteen', '-1'])('the script refuses KEEP_DAYS=%j before it makes a backup', (keepDays) => {
  const directory = temporaryDirectory()
  expect(backUp(directory, 'mkdir "$2"', keepDays)).toBe(1)
  expect(readdirSync(directory)).toEqual([])
})
