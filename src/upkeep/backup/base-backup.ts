/**
 * Backs up the embedded server while it runs, like pg_basebackup, which its package does not contain:
 *
 * 1. With SECRETS_KEYS, tables with secrets are rewritten, because freed space may hold secrets in plain text (old-secrets.ts).
 * 2. A temporary replication slot keeps the write-ahead log (WAL) from now on. It ends with the session.
 * 3. pg_backup_start performs a checkpoint. The files are copied while they change.
 * 4. pg_backup_stop returns backup_label. Recovery replays the WAL from its position, which repairs files that changed during the copy.
 * 5. The WAL between the two calls is copied. Both calls begin a new segment, so these segments contain nothing older.
 */
import { mkdirSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join, resolve, sep } from 'node:path'
import { serviceVersion } from '../../config/package.ts'
import { FatalError } from '../../errors.ts'
import type { Database } from '../../postgres/database.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import {
  copyFile,
  inParallel,
  isMissing,
  listTree,
  type OnBytes,
  syncDirectory,
  withFile,
  writeSynced,
} from './files.ts'
import {
  type BackupFile,
  createBackupDirectory,
  dataOf,
  type Manifest,
  readMoment,
  writeManifest,
} from './manifest.ts'
import { removeOldSecrets } from './old-secrets.ts'

/** Directories whose contents a server creates when it starts. The WAL is copied at the end. */
const EMPTY = [
  'pg_wal',
  'pg_replslot',
  'pg_dynshmem',
  'pg_notify',
  'pg_serial',
  'pg_snapshots',
  'pg_stat_tmp',
  'pg_subtrans',
]
/** Files of the running server, of former backups, and of temporary tables: the list of pg_basebackup. */
const SKIPPED =
  /(^|\/)(postmaster\.(pid|opts)|\.s\.PGSQL\..*|postgresql\.auto\.conf\.tmp|current_logfiles.*|(backup_label|tablespace_map)(\.old)?|backup_manifest.*|pg_internal\.init.*|pgsql_tmp.*|t\d+_\d+.*)$/
/** Its checkpoint must not be newer than those of other files that are copied later. pg_basebackup copies it last, too. */
const CONTROL = 'global/pg_control'

/** $1 text: name of the slot. It ends with the session. */
const keepLog = statement('keep-log-for-backup')`
    select from pg_create_physical_replication_slot($1, immediately_reserve => true, temporary => true)`

const startBackup = statement('start-backup')`
    select pg_backup_start('oa-audience', fast => true)::text as lsn`

const stopBackup = statement('stop-backup')`
    select lsn::text, labelfile from pg_backup_stop(wait_for_archive => false)`

/** $1 pg_lsn: start; $2 pg_lsn: stop. The segments of the log between the two. */
const selectSegments = statement('select-log-segments-of-backup')`
    select pg_walfile_name('0/0'::pg_lsn + (segment * size + 1)) as name, size::int as size
      from (select setting::numeric as size from pg_settings where name = 'wal_segment_size') s,
           generate_series(div($1::pg_lsn - '0/0'::pg_lsn, size), div($2::pg_lsn - '0/0'::pg_lsn - 1, size)) as segment
     order by segment`

interface BackupProgress {
  /** bytes to copy, which is known when the copy begins */
  onTotal: (bytes: number) => void
  onBytes: OnBytes
  onWarning: (text: string) => void
}

export async function backUpServer(
  database: Database,
  dataDir: string,
  directory: string,
  progress: BackupProgress,
): Promise<Manifest> {
  const server = join(dataDir, 'postgres')
  if (`${resolve(directory)}${sep}`.startsWith(`${resolve(server)}${sep}`))
    throw new FatalError(`${directory} is inside the database. Choose a directory elsewhere.`)
  createBackupDirectory(directory)
  return database.session(async (session) => {
    if (session.secretKeys.currentId !== null) await removeOldSecrets(session, progress.onWarning)
    const manifest = await copyServer(session, server, dataOf(directory), progress)
    await writeManifest(directory, manifest)
    return manifest
  })
}

async function copyServer(
  session: Queryable,
  server: string,
  target: string,
  progress: BackupProgress,
): Promise<Manifest> {
  if ((await readdir(join(server, 'pg_tblspc'))).length > 0)
    throw new FatalError(
      'The database has tablespaces, which this command does not back up. Use pg_basebackup.',
    )
  await session.query(keepLog, [`oa_audience_backup_${process.pid}`])
  const [start] = await session.query<{ lsn: string }>(startBackup)
  const tree = await listTree(server, isCopied)
  progress.onTotal(await sizeOf(server, tree.files))
  for (const path of tree.directories) mkdirSync(join(target, path), { mode: 0o700 })
  const files: BackupFile[] = []
  const copy = async (path: string) => {
    const file = await copyUnlessDropped(server, target, path, progress.onBytes)
    if (file !== null) files.push(file)
  }
  await inParallel(
    tree.files.filter((path) => path !== CONTROL),
    copy,
  )
  files.push({ path: CONTROL, ...(await copyControl(server, target)) })
  const moment = await readMoment(session)
  const [stop] = await session.query<{ lsn: string; labelfile: string }>(stopBackup)
  if (start === undefined || stop === undefined) throw new Error('the server returned no position')
  const log = { start: start.lsn, stop: stop.lsn }
  files.push({ path: 'backup_label', ...(await writeSynced(join(target, 'backup_label'), stop.labelfile)) })
  files.push(...(await copyLog(session, server, target, log)))
  for (const path of ['', ...tree.directories]) await syncDirectory(join(target, path))
  return { kind: 'base', version: serviceVersion, ...moment, log, directories: tree.directories, files }
}

function isCopied(path: string): boolean {
  const [first = '', ...rest] = path.split(sep)
  return !SKIPPED.test(path) && !(rest.length > 0 && EMPTY.includes(first))
}

async function sizeOf(server: string, files: string[]): Promise<number> {
  let bytes = 0
  await inParallel(files, async (path) => {
    const { size } = await stat(join(server, path)).catch(() => ({ size: 0 }))
    bytes += size
  })
  return bytes
}

/** The file of a table that is dropped meanwhile is not needed, because the WAL contains its removal. */
async function copyUnlessDropped(
  server: string,
  target: string,
  path: string,
  onBytes: OnBytes = () => undefined,
): Promise<BackupFile | null> {
  try {
    return { path, ...(await copyFile(join(server, path), join(target, path), { mustSync: true }, onBytes)) }
  } catch (error) {
    const { path: missing } = error as NodeJS.ErrnoException
    if (isMissing(error) && missing === join(server, path)) return null
    throw error
  }
}

/** The server may write the file during a read, so it is read again until two reads are equal. */
async function copyControl(server: string, target: string) {
  const read = () => withFile(join(server, CONTROL), (file) => file.readFile())
  let [before, content] = [await read(), await read()]
  while (!content.equals(before)) [before, content] = [content, await read()]
  return writeSynced(join(target, CONTROL), content)
}

async function copyLog(
  session: Queryable,
  server: string,
  target: string,
  { start, stop }: { start: string; stop: string },
): Promise<BackupFile[]> {
  const segments = await session.query<{ name: string; size: number }>(selectSegments, [start, stop])
  const files: BackupFile[] = []
  for (const { name, size } of segments) {
    const path = join('pg_wal', name)
    const copied = await copyUnlessDropped(server, target, path)
    if (copied?.size !== size)
      throw new FatalError(`${path} is missing from the server. Run the backup again.`)
    files.push(copied)
  }
  const histories = (await readdir(join(server, 'pg_wal'))).filter((name) => name.endsWith('.history'))
  for (const name of histories) {
    const copied = await copyUnlessDropped(server, target, join('pg_wal', name))
    if (copied !== null) files.push(copied)
  }
  return files
}
