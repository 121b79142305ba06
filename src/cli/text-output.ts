/** Output of an export that cannot be continued: a file is complete or unchanged. */
import { randomBytes } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { realpath, rename, rm, stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { FatalError } from '../errors.ts'
import { systemReason } from '../system-reason.ts'
import { io } from './io.ts'

const WRITE_ERRORS = ['ENOENT', 'ENOSPC', 'EACCES', 'EISDIR', 'EPERM', 'EROFS', 'EIO', 'ENOTDIR', 'ELOOP']

/** Writes to a file, or to standard output. Throws a FatalError if that is impossible. */
export async function writeTexts(texts: AsyncIterable<string>, file: string | undefined): Promise<void> {
  const input = Readable.from(texts, { highWaterMark: 1 })
  try {
    if (file === undefined) await pipeline(input, io.stdout, { end: false })
    else if (await isSpecial(file)) await pipeline(input, createWriteStream(file))
    else await replaceFile(input, file)
  } catch (error) {
    const { code } = error as { code?: string }
    if (!WRITE_ERRORS.includes(code ?? '')) throw error
    throw new FatalError(`${file ?? 'standard output'} cannot be written: ${systemReason(error)}`)
  }
}

/** A device or a pipe, such as /dev/null, is written to and not replaced by a file. */
async function isSpecial(file: string): Promise<boolean> {
  const found = await stat(file).catch(() => null)
  return found !== null && !found.isFile() && !found.isDirectory()
}

/**
 * The content is personal data, so only the user may read the file. A new file replaces an old one, whose mode, owner and open
 * readers would remain otherwise. An export that fails leaves the old file.
 */
async function replaceFile(input: Readable, file: string): Promise<void> {
  const target = await realpath(file).catch(() => file)
  const written = `${target}.${randomBytes(6).toString('hex')}.partial`
  try {
    await pipeline(input, createWriteStream(written, { flags: 'wx', mode: 0o600 }))
    await rename(written, target)
  } catch (error) {
    await rm(written, { force: true })
    throw error
  }
}
