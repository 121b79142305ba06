/** Copies, checksums and syncs the files of a backup. */
import { createHash } from 'node:crypto'
import { constants, type Dirent } from 'node:fs'
import { type FileHandle, open, readdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { FatalError } from '../../errors.ts'

/** Size of a read and a write. */
const PIECE_BYTES = 1024 * 1024
/** Backups contain personal data. */
export const OWNER_ONLY = 0o600

export interface Checksum {
  size: number
  sha256: string
}

/** Called with the number of bytes of each piece. */
export type OnBytes = (bytes: number) => void

export const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT'

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

export function copyFile(
  from: string,
  to: string,
  mustSync: boolean,
  onBytes: OnBytes = () => undefined,
): Promise<Checksum> {
  return withFile(from, (source) =>
    withFile(
      to,
      async (target) => {
        const checksum = await readPieces(source, async (piece) => {
          await target.writeFile(piece)
          onBytes(piece.length)
        })
        if (mustSync) await target.sync()
        return checksum
      },
      'wx',
    ),
  )
}

export const checksumOf = (path: string, onBytes: OnBytes = () => undefined): Promise<Checksum> =>
  withFile(path, (file) => readPieces(file, async (piece) => onBytes(piece.length)))

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

export const writeSynced = (path: string, content: string): Promise<void> =>
  withFile(
    path,
    async (file) => {
      await file.writeFile(content)
      await file.sync()
    },
    'wx',
  )

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
