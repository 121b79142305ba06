/** The output of exports. */

import { randomBytes } from 'node:crypto'
import { createWriteStream, statSync } from 'node:fs'
import { realpath, rename, rm } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGzip, type Gzip } from 'node:zlib'
import { FatalError } from '../errors.ts'
import { systemReason } from '../system-reason.ts'
import { io } from './io.ts'
import { Progress } from './progress.ts'

/** Writes the parts, shows the progress, and returns the number of items. */
export async function writeParts(
  parts: AsyncIterable<{ text: string; count: number }>,
  unit: string,
  file: string | undefined,
): Promise<number> {
  // A progress bar would overwrite lines that are written to the same terminal.
  const progress = file === undefined && io.stdout.isTTY ? null : new Progress(unit, null)
  let written = 0
  const texts = async function* () {
    for await (const { text, count } of parts) {
      yield text
      written += count
      progress?.show(written)
    }
  }
  try {
    await writeTexts(texts(), file)
  } catch (error) {
    // The reader of the output, such as head, has closed the pipe.
    if ((error as { code?: string }).code !== 'EPIPE') throw error
  } finally {
    progress?.end()
  }
  return written
}

/** A device or a pipe, such as /dev/null, is written to and not replaced by a file. */
function isSpecial(file: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false })
  return found !== undefined && !found.isFile() && !found.isDirectory()
}

const WRITE_ERRORS = ['ENOENT', 'ENOSPC', 'EACCES', 'EISDIR', 'EPERM', 'EROFS', 'EIO', 'ENOTDIR', 'ELOOP']

/** Writes to a file, or to standard output. A file is complete or unchanged. Throws a FatalError if that is impossible. */
export async function writeTexts(texts: AsyncIterable<string>, file: string | undefined): Promise<void> {
  const input = Readable.from(texts, { highWaterMark: 1 })
  try {
    if (file === undefined) await pipeline(input, io.stdout, { end: false })
    else if (isSpecial(file)) await pipeline(input, createWriteStream(file))
    else await replaceFile(input, file, file.endsWith('.gz') ? [createGzip()] : [])
  } catch (error) {
    const { code } = error as { code?: string }
    if (!WRITE_ERRORS.includes(code ?? '')) throw error
    throw new FatalError(`${file ?? 'standard output'} cannot be written: ${systemReason(error)}`)
  }
}

/**
 * The content is personal data, so only the user may read the file. A new file replaces an old one, whose mode, owner and open
 * readers would remain otherwise. An export that fails leaves the old file.
 */
async function replaceFile(input: Readable, file: string, transforms: Gzip[]): Promise<void> {
  const target = await realpath(file).catch(() => file)
  const written = `${target}.${randomBytes(6).toString('hex')}.partial`
  try {
    await pipeline([input, ...transforms, createWriteStream(written, { flags: 'wx', mode: 0o600 })])
    await rename(written, target)
  } catch (error) {
    await rm(written, { force: true })
    throw error
  }
}
