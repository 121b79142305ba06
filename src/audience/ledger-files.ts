/** Reads ERASURE_LEDGER: a directory in which each process has its own append-only files. */
import { constants, createReadStream } from 'node:fs'
import { access, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { FatalError } from '../errors.ts'
import {
  ERASURES,
  LEDGER_LINE_MAX_BYTES,
  type LedgerErasure,
  type LedgerFormat,
  type LedgerLine,
  type Numbered,
} from './ledger-line.ts'

/** 1 MiB. A power failure during an append may leave zeros at the end. A longer end without a line feed is other damage. */
const UNTERMINATED_MAX_CHARACTERS = 1024 * 1024

type SystemError = Error & { code?: string }

/** Throws a FatalError of one line if the directory cannot be used. A missing one is not created, because it may not be mounted. */
export async function requireLedger(directory: string): Promise<void> {
  try {
    if (!(await stat(directory)).isDirectory()) throw Object.assign(new Error(), { code: 'ENOTDIR' })
    await access(directory, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    const { code } = error as SystemError
    throw new FatalError(
      `ERASURE_LEDGER ${directory} cannot be used (${code}). Create or mount this directory, and let the service write to it.`,
    )
  }
}

/** Paths of all files of a format, sorted by name. Other files of the directory are ignored. */
export async function listLedgerFiles(
  directory: string,
  { suffix }: { suffix: string } = ERASURES,
): Promise<string[]> {
  const names = await readdir(directory).catch((error: SystemError) => {
    throw new FatalError(`ERASURE_LEDGER ${directory} cannot be read (${error.code}).`)
  })
  return names
    .filter((name) => name.endsWith(suffix))
    .sort()
    .map((name) => join(directory, name))
}

/** What readers found beside whole lines. One damaged byte must not hide the other lines. */
export class LedgerDamage {
  /** texts that are not lines */
  unreadable = 0
  /** numbers without a line, for example of a line that was removed */
  missing = 0
  /** the first unreadable text, as `path, line n` */
  first = ''

  addUnreadable(place: string): void {
    this.unreadable += 1
    this.first ||= place
  }
}

/**
 * Yields all lines of a file, and adds everything else to `damage`. An unterminated last line is ignored: it is being written, or its
 * write failed, and its erasure was not confirmed.
 */
export async function* readLedgerFile<Entry>(
  path: string,
  damage: LedgerDamage,
  format: LedgerFormat<Entry>,
): AsyncGenerator<Numbered<Entry>> {
  let [place, expected, unreadable, rest] = [0, 1, 0, '']
  const read = (text: string): Numbered<Entry> | null => {
    place += 1
    if (place === 1 && `${text}\n` === format.header) return null
    const line = format.parse(text)
    if (line !== null) {
      damage.missing += Math.max(0, line.number - expected - unreadable)
      expected = line.number + 1
      unreadable = 0
      return line
    }
    unreadable += 1
    damage.addUnreadable(`${path}, line ${place}`)
    return null
  }
  try {
    for await (const chunk of createReadStream(path, 'latin1')) {
      const texts = (rest + chunk).split('\n')
      rest = texts.pop() ?? ''
      if (rest.length > UNTERMINATED_MAX_CHARACTERS) {
        texts.push(rest)
        rest = ''
      }
      for (const text of texts) {
        const line = read(text)
        if (line !== null) yield line
      }
    }
  } catch (error) {
    throw explain(path, error)
  }
}

/** Returns up to `count` readable lines of erasures at the end of a file without reading the others. */
export async function readLastLines(
  path: string,
  count: number,
  damage: LedgerDamage,
): Promise<LedgerLine[]> {
  const bytes = count * LEDGER_LINE_MAX_BYTES + ERASURES.header.length
  let { text, isWhole } = await readEnd(path, bytes)
  // An unterminated last line takes the place of others.
  if (!isWhole && text.split('\n').length - 2 < count)
    ({ text, isWhole } = await readEnd(path, bytes + UNTERMINATED_MAX_CHARACTERS))
  // In a part of a file, the first text is the end of a line.
  const texts = text.split('\n').slice(isWhole ? 0 : 1, -1)
  if (isWhole && `${texts[0]}\n` === ERASURES.header) texts.shift()
  const lines: LedgerLine[] = []
  for (const each of texts.slice(-count)) {
    const line = ERASURES.parse(each)
    if (line === null) damage.addUnreadable(path)
    else lines.push(line)
  }
  if (!isWhole && texts.length === 0) damage.addUnreadable(path)
  return lines
}

async function readEnd(path: string, maxBytes: number): Promise<{ text: string; isWhole: boolean }> {
  try {
    const file = await open(path)
    try {
      const { size } = await file.stat()
      const start = Math.max(0, size - maxBytes)
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - start), 0, size - start, start)
      return { text: buffer.toString('latin1', 0, bytesRead), isWhole: start === 0 }
    } finally {
      await file.close()
    }
  } catch (error) {
    throw explain(path, error)
  }
}

function explain(path: string, error: unknown): Error {
  return new FatalError(
    `${path} cannot be read (${(error as SystemError).code ?? (error as Error).message}).`,
  )
}

/** Yields the erasures of all files. */
export async function* readLedger(directory: string, damage: LedgerDamage): AsyncGenerator<LedgerErasure> {
  for (const path of await listLedgerFiles(directory)) yield* readLedgerFile(path, damage, ERASURES)
}
