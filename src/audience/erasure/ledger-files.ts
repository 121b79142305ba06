/** Reads ERASURE_LEDGER: a directory in which each process has its own append-only files. */
import { constants, createReadStream } from 'node:fs'
import { access, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { FatalError } from '../../errors.ts'
import { parsePathId } from '../../http/path-id.ts'

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

// The lines of the files in ERASURE_LEDGER. A file begins with a header. Each further line is one erasure, or one revocation:
//
//   number account member hash time
//   1 7 25413876123456 5f…(64 hexadecimal digits)…0a 2026-11-23T17:09:41.123Z
//
//   number kind id time
//   1 client 12 2026-11-23T17:09:41.123Z
//
// Numbers of a file are consecutive. The member is `-` if the person was not a member, or if the id is unknown. The hash is keyed with
// the account's person_key.

/** 16 + 20 + 20 + 64 + 24 characters, four spaces and the line feed. */
export const LEDGER_LINE_MAX_BYTES = 149

export interface LedgerErasure {
  accountId: bigint
  /** null: the person was not a member */
  memberId: bigint | null
  /** 64 hexadecimal digits */
  hash: string
  /** milliseconds since 1970 */
  erasedAt: number
}

export interface Revocation {
  /** what ended; see unrecorded_revocation */
  kind: string
  id: bigint
  /** milliseconds since 1970 */
  revokedAt: number
}

/** `number` is the running number in the file. */
type Numbered<Entry> = Entry & { number: number }
type LedgerLine = Numbered<LedgerErasure>

export interface LedgerFormat<Entry> {
  /** Names of files end with it. */
  suffix: string
  header: string
  format: (line: Numbered<Entry>) => string
  /** Returns null if the text, without its line feed, is not a line that `format` writes. */
  parse: (text: string) => Numbered<Entry> | null
}

const LINE =
  /^([1-9]\d{0,15}) (-?\d{1,19}) (-|-?\d{1,19}) ([0-9a-f]{64}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/

export const ERASURES: LedgerFormat<LedgerErasure> = {
  suffix: '.ledger',
  header: 'oa-audience erasure ledger 1\n',
  format: ({ number, accountId, memberId, hash, erasedAt }) =>
    `${number} ${accountId} ${memberId ?? '-'} ${hash} ${new Date(erasedAt).toISOString()}\n`,
  parse(text) {
    const [, number = '', account = '', member = '', hash = '', time = ''] = LINE.exec(text) ?? []
    const accountId = parsePathId(account)
    const memberId = member === '-' ? null : parsePathId(member)
    const erasedAt = Date.parse(time)
    if (accountId === null || (memberId === null && member !== '-') || Number.isNaN(erasedAt)) return null
    const line = { number: Number(number), accountId, memberId, hash, erasedAt }
    // Dates such as February 30 are normalized by Date.parse.
    return ERASURES.format(line) === `${text}\n` ? line : null
  },
}

const REVOCATION = /^([1-9]\d{0,15}) ([a-z-]{1,40}) (-?\d{1,19}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/

export const REVOCATIONS: LedgerFormat<Revocation> = {
  suffix: '.revocations',
  header: 'oa-audience revocations 1\n',
  format: ({ number, kind, id, revokedAt }) =>
    `${number} ${kind} ${id} ${new Date(revokedAt).toISOString()}\n`,
  parse(text) {
    const [, number = '', kind = '', objectId = '', time = ''] = REVOCATION.exec(text) ?? []
    const id = parsePathId(objectId)
    const revokedAt = Date.parse(time)
    if (id === null || Number.isNaN(revokedAt)) return null
    const line = { number: Number(number), kind, id, revokedAt }
    return REVOCATIONS.format(line) === `${text}\n` ? line : null
  },
}
