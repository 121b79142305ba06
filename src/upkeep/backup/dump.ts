/** Backs up and restores the database of DATABASE_URL with PostgreSQL's client programs pg_dump and pg_restore. */
import { spawn } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { DatabaseChoice } from '../../config/config.ts'
import { environmentOfPostgresPrograms } from '../../config/config.ts'
import { splitPassword } from '../../config/database-url.ts'
import { serviceVersion } from '../../config/package.ts'
import type { Secret } from '../../config/secret.ts'
import { FatalError } from '../../errors.ts'
import type { Database } from '../../postgres/database.ts'
import { withOpened } from '../../postgres/pool/open.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { checksumOf, inParallel, listTree, OWNER_ONLY, syncDirectory, withFile } from './files.ts'
import {
  type BackupFile,
  createBackupDirectory,
  dataOf,
  type Manifest,
  readMoment,
  writeManifest,
} from './manifest.ts'
import { type Restored, recordRestore } from './record-restore.ts'

/** Indexes are built in parallel. Each job has a connection. */
const RESTORE_JOBS = Math.min(4, availableParallelism())
const PROCEDURE =
  "Install the client programs of the server's version, or back the server up as docs/operate/backup.md says (pg_basebackup, snapshots)."

export async function backUpByDump(database: Database, url: Secret, directory: string): Promise<Manifest> {
  // Read before the snapshot of pg_dump, so that every change that the dump lacks is later.
  const moment = await database.session(readMoment)
  await requireProgram('pg_dump', moment.postgresMajor)
  createBackupDirectory(directory)
  const data = dataOf(directory)
  await run('pg_dump', ['--format=directory', '--no-owner', '--no-privileges', `--file=${data}`], url)
  const tree = await listTree(data)
  const files: BackupFile[] = []
  await inParallel(tree.files, async (path) => {
    const file = join(data, path)
    files.push({ path, ...(await checksumOf(file, () => undefined)) })
    await withFile(file, async (written) => {
      await written.chmod(OWNER_ONLY)
      await written.sync()
    })
  })
  await syncDirectory(data)
  const manifest: Manifest = {
    kind: 'dump',
    version: serviceVersion,
    ...moment,
    log: null,
    directories: [],
    files,
  }
  await writeManifest(directory, manifest)
  return manifest
}

const selectContents = statement('select-contents-of-database')`
    select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
                      and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')) as has_tables`

/** A service refuses to start while the table exists (refuseUnfinishedRestore). */
const createMarker = statement('create-restore-marker')`create table unfinished_restore ()`

/** Throws a FatalError if the programs are missing or the database is not empty. */
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
      await run('pg_restore', [...jobs, dataOf(directory)], choice.url)
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
  await requireProgram('pg_restore', 0)
  await session.query(createMarker)
}

/** Throws a FatalError unless the program is installed and not older than the server. */
async function requireProgram(program: string, major: number): Promise<void> {
  const version = await output(program, ['--version'], {}).catch((error) => {
    if (error.code === 'ENOENT') throw new FatalError(`${program} is not in the PATH. ${PROCEDURE}`)
    throw error
  })
  const found = Number(/\s(\d+)/.exec(version)?.[1])
  if (found >= major) return
  throw new FatalError(
    `${program} of PostgreSQL ${found} cannot read a server of PostgreSQL ${major}. ${PROCEDURE}`,
  )
}

/** The password is in the environment, because every user of the machine can read arguments. */
async function run(program: string, args: string[], url: Secret): Promise<void> {
  const { address, password } = splitPassword(url.reveal())
  await output(program, [...args, `--dbname=${address}`], password === null ? {} : { PGPASSWORD: password })
}

/** Returns the standard output. Throws a FatalError with the first error that the program printed. */
function output(program: string, args: string[], variables: Record<string, string>): Promise<string> {
  const env = { ...environmentOfPostgresPrograms(), LC_ALL: 'C', ...variables }
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
    let [stdout, stderr] = ['', '']
    child.stdout.on('data', (chunk) => {
      stdout += chunk
    })
    child.stderr.on('data', (chunk) => {
      stderr += chunk
    })
    child.once('error', reject)
    child.once('close', (code) => {
      if (code === 0) return resolve(stdout)
      const line =
        stderr.split('\n').find((text) => text.includes('error: ')) ?? `${program} ended with ${code}`
      reject(new FatalError(line))
    })
  })
}
