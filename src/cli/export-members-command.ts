/** Writes the members of an account to a file or to standard output. */
import { randomBytes } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { realpath, rename, rm, stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Scope } from '../access/scope.ts'
import { checkFilters, type Filters, toFilters } from '../audience/filters.ts'
import { beginningOf } from '../audience/list.ts'
import { CSV, memberLines, NDJSON } from '../audience/stream.ts'
import { FatalError, toFatalError } from '../errors.ts'
import { commandActor } from '../operator/actor.ts'
import { publicFilters } from '../operator/jobs/tag-members.ts'
import { recordFile } from '../operator/members/manage-members.ts'
import { countMembers } from '../operator/members/members.ts'
import type { Database } from '../postgres/database.ts'
import { io } from './io.ts'
import { Progress } from './progress.ts'

export const FORMATS = { ndjson: NDJSON, csv: CSV }

export interface ExportOptions {
  format: keyof typeof FORMATS
  output?: string
  userId?: string
  externalId?: string
  relationship?: string
  tag?: string[]
  q?: string
  updatedSince?: string
}

/** Returns the number of lines written. Throws a FatalError for an invalid filter or an output that cannot be written. */
export async function exportMembers(
  database: Database,
  scope: Scope,
  { format, output, ...filterOptions }: ExportOptions,
): Promise<number> {
  const filters = readFilters(filterOptions)
  const members = await countMatching(database, scope, filters)
  const changes = { format, ...(members !== null && { members }), filters: publicFilters(filters) }
  // Before the first byte, because an export that is interrupted has also left the service.
  await recordFile(database, commandActor(), { ...scope, id: scope.accountId }, 'members.exported', changes)
  const lines = memberLines(database.reads.streams(), scope, filters, beginningOf(filters), FORMATS[format])
  // A progress bar would overwrite lines that are written to the same terminal.
  const isShared = output === undefined && io.stdout.isTTY
  const progress = isShared ? null : new Progress('members', members)
  let count = 0
  const texts = async function* () {
    for await (const { text, count: added } of lines) {
      yield text
      count += added
      progress?.show(count)
    }
  }
  try {
    await writeTexts(texts(), output)
    return count
  } catch (error) {
    // The reader of the output, such as head, has closed the pipe.
    if ((error as { code?: string }).code === 'EPIPE') return count
    throw error
  } finally {
    progress?.end()
  }
}

const WRITE_ERRORS = ['ENOENT', 'ENOSPC', 'EACCES', 'EISDIR', 'EPERM', 'EROFS', 'EIO', 'ENOTDIR', 'ELOOP']

async function writeTexts(texts: AsyncIterable<string>, file: string | undefined): Promise<void> {
  const input = Readable.from(texts, { highWaterMark: 1 })
  try {
    if (file === undefined) await pipeline(input, io.stdout, { end: false })
    else if (await isSpecial(file)) await pipeline(input, createWriteStream(file))
    else await replaceFile(input, file)
  } catch (error) {
    const { code } = error as { code?: string }
    if (!WRITE_ERRORS.includes(code ?? '')) throw error
    throw new FatalError(`${file ?? 'standard output'} cannot be written (${code})`)
  }
}

/** A device or a pipe, such as /dev/null, is written to and not replaced by a file. */
async function isSpecial(file: string): Promise<boolean> {
  const found = await stat(file).catch(() => null)
  return found !== null && !found.isFile() && !found.isDirectory()
}

/**
 * Members are personal data, so only the user may read the file. A new file replaces an old one, whose mode, owner and open
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

function readFilters(options: Omit<ExportOptions, 'format' | 'output'>): Filters {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  try {
    return toFilters(checkFilters(Object.fromEntries(given)))
  } catch (error) {
    throw toFatalError(error)
  }
}

/** Returns null with filters, because counting the matches would take as long as the export. */
async function countMatching(database: Database, scope: Scope, filters: Filters): Promise<number | null> {
  return Object.keys(filters).length > 0 ? null : countMembers(database, scope.accountId)
}
