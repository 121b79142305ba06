/** The files that exports write: page by page, so that an export can be continued, or as a whole. */

import { randomBytes } from 'node:crypto'
import {
  closeSync,
  createWriteStream,
  fstatSync,
  ftruncateSync,
  openSync,
  statSync,
  writeSync,
} from 'node:fs'
import { realpath, rename, rm } from 'node:fs/promises'
import { Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { FatalError } from '../errors.ts'
import { systemReason } from '../system-reason.ts'
import { io } from './io.ts'

const compress = promisify(gzip)

/** It always ends with a complete page, unless the process is killed. */
export interface PageOutput {
  write: (text: string) => Promise<void>
  close: () => Promise<void>
}

interface OutputOptions {
  /** undefined: standard output */
  file: string | undefined
  /** Each page is a gzip member of its own. Programs that read gzip read several members as one file. */
  isCompressed: boolean
  /** Appends to the file. Otherwise, a file with content is refused. */
  isContinued: boolean
}

export function openOutput({ file, isCompressed, isContinued }: OutputOptions): PageOutput {
  const target =
    file === undefined
      ? streamOutput('standard output', io.stdout as Writable)
      : fileOutput(file, isContinued)
  const bytesOf = async (text: string) => (isCompressed ? compress(text) : Buffer.from(text))
  return { ...target, write: async (text) => target.write(await bytesOf(text)) }
}

interface ByteOutput {
  write: (bytes: Buffer) => Promise<void>
  close: () => Promise<void>
}

function streamOutput(
  name: string,
  stream: Writable,
  close: ByteOutput['close'] = async () => undefined,
): ByteOutput {
  // The callback of the write has the error as well. Without a listener, the event would end the process.
  stream.on('error', () => undefined)
  const write = (bytes: Buffer) =>
    new Promise<void>((resolve, reject) => {
      stream.write(bytes, (error) => (error ? reject(writeError(name, error)) : resolve()))
    })
  return { write, close }
}

/**
 * The content is personal data, so only the user may read the file. Pages are written synchronously: a signal is handled between two
 * pages. A page that cannot be written completely, as when the disk is full, is removed.
 */
function fileOutput(file: string, isContinued: boolean): ByteOutput {
  if (isSpecial(file)) {
    const stream = createWriteStream(file)
    return streamOutput(file, stream, () => new Promise((resolve) => stream.end(resolve)))
  }
  const descriptor = open(file, isContinued)
  let size = fstatSync(descriptor).size
  const write = async (bytes: Buffer) => {
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(descriptor, bytes, done)
      size += bytes.length
    } catch (error) {
      ftruncateSync(descriptor, size)
      throw writeError(file, error)
    }
  }
  return { write, close: async () => closeSync(descriptor) }
}

/** A device or a pipe, such as /dev/null, is written to and not replaced by a file. */
function isSpecial(file: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false })
  return found !== undefined && !found.isFile() && !found.isDirectory()
}

function open(file: string, isContinued: boolean): number {
  let descriptor: number
  try {
    descriptor = openSync(file, 'a', 0o600)
  } catch (error) {
    throw writeError(file, error)
  }
  if (isContinued || fstatSync(descriptor).size === 0) return descriptor
  closeSync(descriptor)
  throw new FatalError(
    `${file} already has content. Choose another file, or append to it: --after with the position of its last line.`,
  )
}

/** A pipe that its reader has closed is not a failure of the command, so the caller gets that error itself. */
function writeError(output: string, error: unknown): unknown {
  const { code } = error as { code?: string }
  return code === 'EPIPE' ? error : new FatalError(`${output} cannot be written: ${systemReason(error)}`)
}

// An export that cannot be continued: a file is complete or unchanged.

const WRITE_ERRORS = ['ENOENT', 'ENOSPC', 'EACCES', 'EISDIR', 'EPERM', 'EROFS', 'EIO', 'ENOTDIR', 'ELOOP']

/** Writes to a file, or to standard output. Throws a FatalError if that is impossible. */
export async function writeTexts(texts: AsyncIterable<string>, file: string | undefined): Promise<void> {
  const input = Readable.from(texts, { highWaterMark: 1 })
  try {
    if (file === undefined) await pipeline(input, io.stdout, { end: false })
    else if (isSpecial(file)) await pipeline(input, createWriteStream(file))
    else await replaceFile(input, file)
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
