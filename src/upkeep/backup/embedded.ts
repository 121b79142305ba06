/**
 * Backs up and restores the embedded server by a copy of its files. A backup:
 *
 * 1. The server is started as by a service, so a service that runs refuses it.
 * 2. With SECRETS_KEYS, tables with secrets are rewritten, because freed space may hold secrets in plain text. Another program may have
 *    inserted a secret before the service encrypted it. Samples of the column stay in pg_statistic.
 * 3. The write-ahead log (WAL) continues in a new segment, which contains nothing older.
 * 4. The server is stopped. The files are copied without the segments before the last checkpoint.
 *
 * A restored server starts in another directory, which is renamed after the restore is recorded. So no service can start on an
 * incomplete database.
 */
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join, resolve, sep } from 'node:path'
import type { DatabaseChoice } from '../../config/config.ts'
import { serviceVersion } from '../../config/package.ts'
import { FatalError } from '../../errors.ts'
import { findBinaries, giveToServer } from '../../postgres/embedded/cluster.ts'
import { findServer, SETTINGS, waitUntilStopped } from '../../postgres/embedded/postmaster.ts'
import { EmbeddedServer } from '../../postgres/embedded/server.ts'
import { exitOnInterrupt, requireUsable, withOpened } from '../../postgres/pool/open.ts'
import { PostgresDatabase } from '../../postgres/pool/postgres-database.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { countPlainRows } from '../stored-secrets.ts'
import {
  type BackupFile,
  copyToDisk,
  createBackupDirectory,
  dataOf,
  listTree,
  type Manifest,
  type Moment,
  readMoment,
  syncDirectory,
  withFile,
  writeManifest,
} from './files.ts'
import { type Restored, recordRestore } from './revived.ts'

type EmbeddedChoice = Extract<DatabaseChoice, { kind: 'embedded' }>

/** ANALYZE replaces the samples before the rewrite of pg_statistic drops the old ones. */
const REWRITES = [
  statement('rewrite-accounts')`vacuum (full, analyze) official_account`,
  statement('rewrite-endpoints')`vacuum (full, analyze) endpoint`,
  statement('rewrite-channels')`vacuum (full, analyze) notification_channel`,
  statement('rewrite-statistics')`vacuum full pg_statistic`,
]

/** A segment that a former server has recycled contains old records until it is full. The server of the backup recycles none. */
const SERVER_SETTINGS = { ...SETTINGS, wal_recycle: 'off' }

/** Goes through the recycled segments to the first new one. */
const leaveRecycledSegments = statement('leave-recycled-segments')`
    do $$ begin
      for step in 0..(select count(*) from pg_ls_waldir() where name > pg_walfile_name(pg_current_wal_insert_lsn())) loop
        perform pg_create_restore_point('backup');
        perform pg_switch_wal();
      end loop;
    end $$`

const writeCheckpoint = statement('checkpoint-of-backup')`checkpoint`

const selectFirstSegment = statement('select-first-segment')`
    select redo_wal_file as name from pg_control_checkpoint()`

/** @param warn receives what the files may contain */
export async function backUpServer(
  { dataDir, secretKeys }: EmbeddedChoice,
  directory: string,
  warn: (text: string) => void,
): Promise<Manifest> {
  const files = join(dataDir, 'postgres')
  if (`${resolve(directory)}${sep}`.startsWith(`${resolve(files)}${sep}`))
    throw new FatalError(`${directory} is inside the database. Choose a directory elsewhere.`)
  const server = new EmbeddedServer(dataDir, SERVER_SETTINGS)
  const database = new PostgresDatabase(server.connection, () => undefined, null, secretKeys)
  const ignoreInterrupts = exitOnInterrupt()
  let prepared: { moment: Moment; firstSegment: string }
  try {
    const isOurs = await server.own(() => undefined)
    if (!isOurs) throw new FatalError('another command uses the database. Run the backup when it has ended.')
    await requireUsable(database)
    prepared = await database.session((session) => prepare(session, warn))
  } finally {
    await database.close()
    await server.release()
    ignoreInterrupts()
  }
  await waitUntilStopped(files)
  createBackupDirectory(directory)
  const copied = await copyServer(files, dataOf(directory), prepared.firstSegment)
  const manifest: Manifest = { kind: 'base', version: serviceVersion, ...prepared.moment, ...copied }
  await writeManifest(directory, manifest)
  return manifest
}

async function prepare(session: Queryable, warn: (text: string) => void) {
  if (session.secretKeys.currentId !== null) {
    const rows = await countPlainRows(session)
    if (rows > 0)
      warn(`Rows with secrets in plain text: ${rows}. Run "oa-audience secrets rotate" before the backup.`)
    for (const rewrite of REWRITES) await session.query(rewrite)
  }
  await session.query(leaveRecycledSegments)
  const moment = await readMoment(session)
  await session.query(writeCheckpoint)
  const [first] = await session.query<{ name: string }>(selectFirstSegment)
  if (first === undefined) throw new Error('the server returned no segment')
  return { moment, firstSegment: first.name }
}

async function copyServer(
  server: string,
  target: string,
  firstSegment: string,
): Promise<Pick<Manifest, 'directories' | 'files'>> {
  // Every start and stop of a server changes this file.
  const readControl = () => withFile(join(server, 'global/pg_control'), (file) => file.readFile())
  const before = await readControl()
  const isOldSegment = (path: string) => dirname(path) === 'pg_wal' && basename(path) < firstSegment
  const tree = await listTree(server, (path) => !isOldSegment(path))
  for (const path of tree.directories) mkdirSync(join(target, path), { mode: 0o700 })
  const files: BackupFile[] = []
  for (const path of tree.files)
    files.push({ path, ...(await copyToDisk(join(server, path), join(target, path))) })
  for (const path of ['', ...tree.directories]) await syncDirectory(join(target, path))
  if (findServer(server) !== null || !before.equals(await readControl()))
    throw new FatalError(
      'the database was used during the backup. Stop the service, and run the backup again.',
    )
  return { directories: tree.directories, files }
}

/** Throws a FatalError if the backup cannot be restored there. Writes nothing. */
export function requireRestorable({ dataDir }: EmbeddedChoice, { postgresMajor }: Manifest): void {
  if (existsSync(join(dataDir, 'postgres'))) {
    throw new FatalError(
      `${join(dataDir, 'postgres')} exists. Stop the service and move the directory away, or set DATA_DIR to another one.`,
    )
  }
  const { major } = findBinaries()
  if (major !== String(postgresMajor)) {
    throw new FatalError(
      `the backup is of PostgreSQL ${postgresMajor}, but this version of oa-audience runs PostgreSQL ${major}. ` +
        'Restore it with the version that made it, then follow "Upgrade the embedded PostgreSQL" in docs/operate/upgrade.md.',
    )
  }
}

export async function restoreServer(
  choice: EmbeddedChoice,
  directory: string,
  manifest: Manifest,
  ledger: string | null,
): Promise<Restored> {
  const { dataDir } = choice
  mkdirSync(dataDir, { recursive: true })
  const staging = mkdtempSync(join(dataDir, 'restore-'))
  try {
    const server = join(staging, 'postgres')
    await copyData(dataOf(directory), server, manifest)
    // The server of the staging directory runs as the user who owns it.
    giveToServer(dataDir, staging)
    const restored = await withOpened({ ...choice, dataDir: staging }, migrate, (database) =>
      recordRestore(database, manifest, ledger),
    )
    await waitUntilStopped(server)
    renameSync(server, join(dataDir, 'postgres'))
    await syncDirectory(dataDir)
    return restored
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
}

async function copyData(from: string, to: string, { directories, files }: Manifest): Promise<void> {
  for (const path of ['', ...directories]) mkdirSync(join(to, path), { mode: 0o700 })
  for (const { path } of files) await copyToDisk(join(from, path), join(to, path))
}
