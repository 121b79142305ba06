/** The files that exports write. A file is complete or unchanged. */
import { randomBytes } from 'node:crypto'
import { createWriteStream, statSync } from 'node:fs'
import { realpath, rename, rm } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { systemReason } from '../config/system-reason.ts'
import { FatalError } from '../errors.ts'
import { io } from './io.ts'
import { withProgress } from './progress.ts'

type Parts = AsyncIterable<{ text: string; count?: number }>

/** Returns the sum of the counts. A file whose name ends with .gz is compressed. @param unit null: show no progress */
export async function writeParts(
  parts: Parts,
  file: string | undefined,
  unit: string | null = null,
): Promise<number> {
  let done = 0
  const write = (show: (done: number) => void) => {
    const texts = async function* () {
      for await (const { text, count = 0 } of parts) {
        yield text
        done += count
        show(done)
      }
    }
    return writeTexts(texts(), file)
  }
  // A progress bar would overwrite lines that are written to the same terminal.
  const isShared = file === undefined && io.stdout.isTTY
  if (unit === null || isShared) await write(() => undefined)
  else await withProgress(unit, null, write)
  return done
}

const WRITE_ERRORS = ['ENOENT', 'ENOSPC', 'EACCES', 'EISDIR', 'EPERM', 'EROFS', 'EIO', 'ENOTDIR', 'ELOOP']

async function writeTexts(texts: AsyncIterable<string>, file: string | undefined): Promise<void> {
  const input = Readable.from(texts, { highWaterMark: 1 })
  try {
    if (file === undefined) await pipeline(input, io.stdout, { end: false })
    else if (isSpecial(file)) await pipeline(input, createWriteStream(file))
    else await replaceFile(input, file)
  } catch (error) {
    const { code = '' } = error as { code?: string }
    // The reader of the output, such as head, has closed the pipe.
    if (code === 'EPIPE') return
    if (!WRITE_ERRORS.includes(code)) throw error
    throw new FatalError(`${file ?? 'standard output'} cannot be written: ${systemReason(error)}`)
  }
}

/** A device or a pipe, such as /dev/null, is written to and not replaced by a file. */
function isSpecial(file: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false })
  return found !== undefined && !found.isFile() && !found.isDirectory()
}

/**
 * The content is personal data, so only the user may read the file. A new file replaces an old one, whose mode, owner and open
 * readers would remain otherwise. An export that fails leaves the old file.
 */
async function replaceFile(input: Readable, file: string): Promise<void> {
  const target = await realpath(file).catch(() => file)
  const written = `${target}.${randomBytes(6).toString('hex')}.partial`
  const output = createWriteStream(written, { flags: 'wx', mode: 0o600 })
  try {
    if (file.endsWith('.gz')) await pipeline(input, createGzip(), output)
    else await pipeline(input, output)
    await rename(written, target)
  } catch (error) {
    await rm(written, { force: true })
    throw error
  }
}
