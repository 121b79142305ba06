/** Copies, checksums and syncs the files of a backup. */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { FatalError } from '../../errors.ts'

/** Size of a read and a write. 4 parallel files × 1 MiB = 4 MiB of memory. */
const PIECE_BYTES = 1024 * 1024
/** A data directory has a thousand small files, whose syncs overlap. Node's thread pool has four threads. */
const PARALLEL_MAX = 4
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

/** Copies a file up to the size that it had when it was opened. The target must not exist. */
export function copyFile(
  from: string,
  to: string,
  { mustSync }: { mustSync: boolean },
  onBytes: OnBytes,
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

export const checksumOf = (path: string, onBytes: OnBytes): Promise<Checksum> =>
  withFile(path, (file) => readPieces(file, async (piece) => onBytes(piece.length)))

async function readPieces(source: FileHandle, use: (piece: Buffer) => Promise<unknown>): Promise<Checksum> {
  // The file may grow meanwhile. The write-ahead log contains the added pages.
  const { size } = await source.stat()
  const buffer = Buffer.allocUnsafe(Math.max(1, Math.min(size, PIECE_BYTES)))
  const hash = createHash('sha256')
  let done = 0
  while (done < size) {
    const { bytesRead } = await source.read(buffer, 0, Math.min(buffer.length, size - done), done)
    // The file was truncated meanwhile.
    if (bytesRead === 0) break
    const piece = buffer.subarray(0, bytesRead)
    hash.update(piece)
    await use(piece)
    done += bytesRead
  }
  return { size: done, sha256: hash.digest('hex') }
}

/** Creates a file with this content, and syncs it. */
export async function writeSynced(path: string, content: string | Buffer): Promise<Checksum> {
  await withFile(
    path,
    async (file) => {
      await file.writeFile(content)
      await file.sync()
    },
    'wx',
  )
  const sha256 = createHash('sha256').update(content).digest('hex')
  return { size: Buffer.byteLength(content), sha256 }
}

/** A new or renamed file survives a power failure once its directory is on disk. The directory may be a symbolic link. */
export const syncDirectory = (path: string): Promise<void> =>
  withFile(path, (directory) => directory.sync(), 'r')

/** After a failure, no further item begins. */
export async function inParallel<T>(items: T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const remaining = items.values()
  let hasFailed = false
  const worker = async () => {
    for (const item of remaining) {
      if (hasFailed) return
      await work(item).catch((error) => {
        hasFailed = true
        throw error
      })
    }
  }
  const settled = await Promise.allSettled(Array.from({ length: PARALLEL_MAX }, worker))
  for (const result of settled) if (result.status === 'rejected') throw result.reason
}

/**
 * The directories and regular files below a directory, as relative paths. Parents come before their contents. Throws a FatalError if
 * there is a symbolic link, because a backup without its target could not be restored.
 */
export async function listTree(
  root: string,
  isWanted: (path: string) => boolean = () => true,
): Promise<{ directories: string[]; files: string[] }> {
  const directories: string[] = []
  const files: string[] = []
  const pending = ['']
  for (let parent = pending.pop(); parent !== undefined; parent = pending.pop()) {
    for (const entry of await entriesOf(join(root, parent))) {
      const path = join(parent, entry.name)
      if (!isWanted(path)) continue
      if (entry.isSymbolicLink())
        throw new FatalError(`${join(root, path)} is a symbolic link, which a backup does not follow.`)
      if (entry.isDirectory()) pending.push(path)
      if (entry.isDirectory()) directories.push(path)
      else if (entry.isFile()) files.push(path)
    }
  }
  return { directories, files }
}

/** A database that is dropped meanwhile has no entries. */
async function entriesOf(directory: string) {
  try {
    return await readdir(directory, { withFileTypes: true })
  } catch (error) {
    if (isMissing(error)) return []
    throw error
  }
}
