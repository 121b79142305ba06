/** Backs up and restores the database of DATABASE_URL with PostgreSQL's client programs pg_dump and pg_restore. */
import { execFile } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type DatabaseChoice, environmentOfPrograms } from '../../config/config.ts'
import { addressForPrograms } from '../../config/database-url.ts'
import { libpqVariables } from '../../config/libpq-variables.ts'
import { serviceVersion } from '../../config/package.ts'
import type { Secret } from '../../config/secret.ts'
import { FatalError } from '../../errors.ts'
import type { Database } from '../../postgres/database.ts'
import { withOpened } from '../../postgres/pool/open.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import {
  type BackupFile,
  checksumOf,
  createBackupDirectory,
  dataOf,
  listTree,
  type Manifest,
  OWNER_ONLY,
  readMoment,
  syncDirectory,
  withFile,
  writeManifest,
} from './files.ts'
import { type Restored, recordRestore } from './revived.ts'

/** Indexes are built in parallel. Each job has a connection. */
const RESTORE_JOBS = Math.min(4, availableParallelism())

export async function backUpByDump(database: Database, url: Secret, directory: string): Promise<Manifest> {
  // Read before the snapshot of pg_dump, so that every change that the dump lacks is later.
  const moment = await database.session(readMoment)
  await run('pg_dump', ['--version'])
  createBackupDirectory(directory)
  const data = dataOf(directory)
  await runOn(url, 'pg_dump', ['--format=directory', '--no-owner', '--no-privileges', `--file=${data}`])
  const tree = await listTree(data)
  const files: BackupFile[] = []
  for (const path of tree.files) {
    const file = join(data, path)
    files.push({ path, ...(await checksumOf(file)) })
    await withFile(file, async (written) => {
      await written.chmod(OWNER_ONLY)
      await written.sync()
    })
  }
  await syncDirectory(data)
  const manifest: Manifest = { kind: 'dump', version: serviceVersion, ...moment, directories: [], files }
  await writeManifest(directory, manifest)
  return manifest
}

const selectContents = statement('select-contents-of-database')`
    select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
                      and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')) as has_tables`

/** A service refuses to start while the table exists (refuseUnfinishedRestore). */
const createMarker = statement('create-restore-marker')`create table unfinished_restore ()`

export function restoreDump(
  choice: Extract<DatabaseChoice, { kind: 'url' }>,
  directory: string,
  manifest: Manifest,
  ledger: string | null,
): Promise<Restored> {
  return withOpened(
    choice,
    (database) => database.session(beginRestore),
    async (database) => {
      const jobs = [`--jobs=${RESTORE_JOBS}`, '--exit-on-error', '--no-owner', '--no-privileges']
      await runOn(choice.url, 'pg_restore', [...jobs, dataOf(directory)])
      await migrate(database)
      return recordRestore(database, manifest, ledger)
    },
  )
}

async function beginRestore(session: Queryable): Promise<void> {
  const [contents] = await session.query<{ has_tables: boolean }>(selectContents)
  if (contents?.has_tables !== false)
    throw new FatalError(
      'the database of DATABASE_URL is not empty. Create an empty database and set DATABASE_URL to it.',
    )
  await run('pg_restore', ['--version'])
  await session.query(createMarker)
}

/** The password is in the environment, because every user of the machine can read arguments. */
async function runOn(url: Secret, program: string, args: string[]): Promise<void> {
  const { address, password } = addressForPrograms(url.reveal())
  await run(program, [...args, `--dbname=${address}`], password === null ? {} : { PGPASSWORD: password })
}

/** Throws a FatalError with the first error that the program printed. pg_dump itself refuses a newer server. */
async function run(program: string, args: string[], variables: Record<string, string> = {}): Promise<void> {
  const env = { ...environmentOfPrograms(), ...libpqVariables(), LC_ALL: 'C', ...variables }
  try {
    await promisify(execFile)(program, args, { env })
  } catch (error) {
    const { code, stderr } = error as { code: number | string; stderr: string }
    if (code === 'ENOENT')
      throw new FatalError(
        `${program} is not in the PATH. Install the client programs of the server's version, or back the server up as ` +
          'docs/operate/backup.md says (pg_basebackup, snapshots).',
      )
    const line = stderr.split('\n').find((text) => text.includes('error: '))
    throw new FatalError(line ?? `${program} ended with ${code}`)
  }
}
