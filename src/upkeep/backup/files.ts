/**
 * The files of a backup, and its manifest: what it contains, with a checksum of each file. The manifest is written last, so a
 * directory without one is not a complete backup.
 */
import { createHash } from 'node:crypto'
import { constants, type Dirent, mkdirSync, readdirSync, renameSync } from 'node:fs'
import { type FileHandle, open, readdir, readFile } from 'node:fs/promises'
import { isAbsolute, join, normalize, relative, resolve, sep } from 'node:path'
import { FatalError } from '../../errors.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'

/** Size of a read and a write. */
const PIECE_BYTES = 1024 * 1024
/** Backups contain personal data. */
export const OWNER_ONLY = 0o600

interface Checksum {
  size: number
  sha256: string
}

const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT'

/** Root must not follow a symbolic link, because the server's user could link to any file. */
const READ = constants.O_RDONLY | constants.O_NOFOLLOW

export async function withFile<T>(
  path: string,
  work: (file: FileHandle) => Promise<T>,
  flags: number | string = READ,
): Promise<T> {
  const file = await open(path, flags, OWNER_ONLY)
  try {
    return await work(file)
  } finally {
    await file.close()
  }
}

export const copyToDisk = (from: string, to: string): Promise<Checksum> =>
  withFile(from, (source) =>
    withFile(
      to,
      async (target) => {
        const checksum = await readPieces(source, (piece) => target.writeFile(piece))
        await target.sync()
        return checksum
      },
      'wx',
    ),
  )

export const checksumOf = (path: string): Promise<Checksum> =>
  withFile(path, (file) => readPieces(file, async () => undefined))

async function readPieces(source: FileHandle, use: (piece: Buffer) => Promise<unknown>): Promise<Checksum> {
  const hash = createHash('sha256')
  let size = 0
  for await (const piece of source.createReadStream({ highWaterMark: PIECE_BYTES, autoClose: false })) {
    hash.update(piece)
    await use(piece)
    size += piece.length
  }
  return { size, sha256: hash.digest('hex') }
}

/** A new or renamed file survives a power failure once its directory is on disk. The directory may be a symbolic link. */
export const syncDirectory = (path: string): Promise<void> =>
  withFile(path, (directory) => directory.sync(), 'r')

/**
 * The directories and regular files below a directory, as relative paths. Parents come before their contents. Throws a FatalError if
 * there is a symbolic link, because a backup without its target could not be restored.
 */
export async function listTree(
  root: string,
  isWanted: (path: string) => boolean = () => true,
): Promise<{ directories: string[]; files: string[] }> {
  const found = await readdir(root, { withFileTypes: true, recursive: true })
  const entries = found
    .map((entry) => ({ entry, path: relative(root, join(entry.parentPath, entry.name)) }))
    .filter(({ path }) => isWanted(path))
  const link = entries.find(({ entry }) => entry.isSymbolicLink())
  if (link !== undefined)
    throw new FatalError(`${join(root, link.path)} is a symbolic link, which a backup does not follow.`)
  const pathsOf = (isOfKind: (entry: Dirent) => boolean) =>
    entries.flatMap(({ entry, path }) => (isOfKind(entry) ? [path] : [])).sort()
  return {
    directories: pathsOf((entry) => entry.isDirectory()),
    files: pathsOf((entry) => entry.isFile()),
  }
}

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
  postgresMajor: number
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
  const write = async (file: FileHandle) => {
    await file.writeFile(`${JSON.stringify({ ...content, sha256 }, null, 1)}\n`)
    await file.sync()
  }
  await withFile(join(directory, `${NAME}.new`), write, 'wx')
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
export async function verifyFiles(directory: string, { files }: Manifest): Promise<void> {
  for (const { path, size, sha256 } of files) {
    const file = join(dataOf(directory), path)
    const found = await checksumOf(file).catch((error) => {
      if (isMissing(error)) throw new FatalError(`${file} is missing from the backup. Use another backup.`)
      throw new FatalError(`${file} cannot be read: ${error.message}`)
    })
    if (found.size !== size || found.sha256 !== sha256) throw damaged(file)
  }
}

const damaged = (file: string) =>
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
           current_setting('server_version_num')::int / 10000 as "postgresMajor"`

export type Moment = Pick<Manifest, 'backupAt' | 'changeLimit' | 'postgresMajor'>

export async function readMoment(session: Queryable): Promise<Moment> {
  const [moment] = await session.query<Moment & Record<string, unknown>>(selectMoment)
  return moment as Moment
}
