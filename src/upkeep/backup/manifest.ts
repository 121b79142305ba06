/**
 * The manifest of a backup: what it contains, with a checksum of each file. It is written last, so a directory without one is not a
 * complete backup.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, renameSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { isAbsolute, join, normalize, resolve, sep } from 'node:path'
import { FatalError } from '../../errors.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { type Checksum, checksumOf, isMissing, type OnBytes, syncDirectory, writeSynced } from './files.ts'

/** Version of the manifest's format. A reader refuses any other. */
const FORMAT = 1
const NAME = 'manifest.json'

export interface BackupFile extends Checksum {
  /** relative to the backup's `data` directory */
  path: string
}

export interface Manifest {
  /** `base`: the files of an embedded server. `dump`: what pg_dump wrote. */
  kind: 'base' | 'dump'
  version: string
  schemaVersion: number
  postgresMajor: number
  systemIdentifier: string
  /** Every change that the backup lacks was made at or after this time, by the database's clock. */
  backupAt: string
  /** The limit of the change numbers in the backup. */
  changeLimit: string
  directories: string[]
  files: BackupFile[]
}

export const dataOf = (directory: string) => join(directory, 'data')

export const bytesOf = ({ files }: Pick<Manifest, 'files'>) => files.reduce((sum, { size }) => sum + size, 0)

/** Throws a FatalError unless the directory is new or empty. */
export function createBackupDirectory(directory: string): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  if (readdirSync(directory).length > 0)
    throw new FatalError(`${directory} is not empty. Choose a new directory for each backup.`)
  mkdirSync(dataOf(directory), { mode: 0o700 })
}

export async function writeManifest(directory: string, manifest: Manifest): Promise<void> {
  const content = { format: FORMAT, ...manifest }
  const sha256 = checksumOfJson(content)
  await writeSynced(join(directory, `${NAME}.new`), `${JSON.stringify({ ...content, sha256 }, null, 1)}\n`)
  renameSync(join(directory, `${NAME}.new`), join(directory, NAME))
  await syncDirectory(directory)
  await syncDirectory(resolve(directory, '..'))
}

const checksumOfJson = (content: unknown) =>
  createHash('sha256').update(JSON.stringify(content)).digest('hex')

export async function readManifest(directory: string): Promise<Manifest> {
  const text = await readFile(join(directory, NAME), 'utf8').catch((error) => {
    if (!isMissing(error)) throw new FatalError(`${directory} cannot be read: ${error.message}`)
    throw new FatalError(`${directory} has no ${NAME}: it is not a backup, or the backup was interrupted.`)
  })
  const { format, sha256, ...manifest } = parse(text)
  if (format !== FORMAT && format !== undefined)
    throw new FatalError(
      `${directory} has another format (${format}). Restore it with the version that made it.`,
    )
  const isComplete = Array.isArray(manifest.files) && Array.isArray(manifest.directories)
  if (sha256 !== checksumOfJson({ format, ...manifest }) || !isComplete) throw damaged(join(directory, NAME))
  for (const path of [...manifest.directories, ...manifest.files.map((file) => file.path)]) {
    if (isAbsolute(path) || normalize(path) !== path || path.split(sep).includes('..'))
      throw damaged(join(directory, NAME))
  }
  return manifest
}

function parse(text: string): Manifest & { format?: number; sha256?: string } {
  try {
    return JSON.parse(text) ?? {}
  } catch {
    return {} as Manifest
  }
}

/** Reads every file. Throws a FatalError that names the first one that differs from its checksum. */
export async function verifyFiles(directory: string, { files }: Manifest, onBytes: OnBytes): Promise<void> {
  for (const { path, size, sha256 } of files) {
    const file = join(dataOf(directory), path)
    const found = await checksumOf(file, onBytes).catch((error) => {
      if (isMissing(error)) throw new FatalError(`${file} is missing from the backup. Use another backup.`)
      throw new FatalError(`${file} cannot be read: ${error.message}`)
    })
    if (found.size !== size || found.sha256 !== sha256) throw damaged(file)
  }
}

export const damaged = (file: string) =>
  new FatalError(`${file} is damaged: its checksum does not match. Use another backup.`)

/**
 * Every change that the backup lacks belongs to a transaction that is in progress now or begins later. The times in its rows are not
 * before its beginning.
 */
const selectMoment = statement('select-backup-moment')`
    select to_char(least(clock_timestamp(), (select min(xact_start) from pg_stat_activity
                                              where datname = current_database() and pid <> pg_backend_pid()
                                                and backend_type = 'client backend')),
                   'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "backupAt",
           change_limit()::text as "changeLimit",
           current_setting('server_version_num')::int / 10000 as "postgresMajor",
           (select system_identifier::text from pg_control_system()) as "systemIdentifier",
           (select max(version) from schema_migration) as "schemaVersion"`

export type Moment = Pick<
  Manifest,
  'backupAt' | 'changeLimit' | 'postgresMajor' | 'systemIdentifier' | 'schemaVersion'
>

export async function readMoment(session: Queryable): Promise<Moment> {
  const [moment] = await session.query<Moment & Record<string, unknown>>(selectMoment)
  return moment as Moment
}
