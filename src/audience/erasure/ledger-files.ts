/**
 * Reads ERASURE_LEDGER: a directory in which each process appends to a file of its own. A line is an erasure or a revocation:
 *
 *   account member hash time
 *   7 25413876123456 5f…(64 hexadecimal digits)…0a 2026-11-23T17:09:41.123Z
 *
 *   kind id time
 *   client 12 2026-11-23T17:09:41.123Z
 *
 * The member is `-` if the person was not a member, or if the id is unknown. The hash is keyed with the account's person_key.
 */
import { constants, createReadStream } from 'node:fs'
import { access, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { FatalError } from '../../errors.ts'
import { parsePathId } from '../../http/path-id.ts'

export interface LedgerErasure {
  accountId: bigint
  memberId: bigint | null
  hash: string
  erasedAt: number
}

interface Revocation {
  /** what ended; see unrecorded_revocation */
  kind: string
  id: bigint
  revokedAt: number
}

export type LedgerEntry = LedgerErasure | Revocation

export const lineOf = (entry: LedgerEntry): string =>
  'hash' in entry
    ? `${entry.accountId} ${entry.memberId ?? '-'} ${entry.hash} ${new Date(entry.erasedAt).toISOString()}`
    : `${entry.kind} ${entry.id} ${new Date(entry.revokedAt).toISOString()}`

/** Release 0.3.0 began each line with its number. */
const ERASURE = /^(?:\d+ )?(-?\d+) (-|-?\d+) ([0-9a-f]{64}) (\S{24})$/
const REVOCATION = /^(?:\d+ )?([a-z-]+) (-?\d+) (\S{24})$/
/** The first line of each file of release 0.3.0. */
const HEADER = /^oa-audience (erasure ledger|revocations) 1$/

export const parseLine = (text: string): LedgerEntry | null => parseErasure(text) ?? parseRevocation(text)

function parseErasure(text: string): LedgerErasure | null {
  const [, account = '', member = '', hash = '', time = ''] = ERASURE.exec(text) ?? []
  const [accountId, memberId, erasedAt] = [parsePathId(account), parsePathId(member), parseTime(time)]
  if (accountId === null || erasedAt === null || (memberId === null && member !== '-')) return null
  return { accountId, memberId, hash, erasedAt }
}

function parseRevocation(text: string): Revocation | null {
  const [, kind = '', object = '', time = ''] = REVOCATION.exec(text) ?? []
  const [id, revokedAt] = [parsePathId(object), parseTime(time)]
  return id === null || revokedAt === null ? null : { kind, id, revokedAt }
}

/** Date.parse takes dates such as February 30 for other dates. */
function parseTime(text: string): number | null {
  const ms = Date.parse(text)
  return !Number.isNaN(ms) && new Date(ms).toISOString() === text ? ms : null
}

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

/** Texts that are not lines. One damaged byte must not hide the other lines. */
export class LedgerDamage {
  unreadable = 0
  first = ''

  add(place: string): void {
    this.unreadable += 1
    this.first ||= place
  }
}

/** Yields all lines, and adds everything else to `damage`. */
export async function* readLedger(directory: string, damage: LedgerDamage): AsyncGenerator<LedgerEntry> {
  for (const path of await listLedgerFiles(directory)) yield* readLedgerFile(path, damage)
}

/** Release 0.3.0 wrote revocations into files with a suffix of their own. */
export async function listLedgerFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch((error: SystemError) => {
    throw new FatalError(`ERASURE_LEDGER ${directory} cannot be read (${error.code}).`)
  })
  return names
    .filter((name) => name.endsWith('.ledger') || name.endsWith('.revocations'))
    .sort()
    .map((name) => join(directory, name))
}

/** 1 MiB. A power failure during an append may leave zeros at the end. A longer end without a line feed is other damage. */
const UNTERMINATED_MAX_CHARACTERS = 1024 * 1024

/** Ignores an unterminated last line: it is being written, or its write failed, and its erasure was not confirmed. */
export async function* readLedgerFile(path: string, damage: LedgerDamage): AsyncGenerator<LedgerEntry> {
  let [place, rest] = [0, '']
  try {
    for await (const chunk of createReadStream(path, 'latin1')) {
      const texts = (rest + chunk).split('\n')
      rest = texts.pop() ?? ''
      if (rest.length > UNTERMINATED_MAX_CHARACTERS) {
        texts.push(rest)
        rest = ''
      }
      for (const text of texts) {
        place += 1
        const entry = parseLine(text)
        if (entry !== null) yield entry
        else if (!HEADER.test(text)) damage.add(`${path}, line ${place}`)
      }
    }
  } catch (error) {
    const { code, message } = error as SystemError
    throw new FatalError(`${path} cannot be read (${code ?? message}).`)
  }
}
