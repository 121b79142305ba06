/**
 * The lines of the files in ERASURE_LEDGER. A file begins with a header. Each further line is one erasure, or one revocation:
 *
 *   number account member hash time
 *   1 7 25413876123456 5f…(64 hexadecimal digits)…0a 2026-11-23T17:09:41.123Z
 *
 *   number kind id time
 *   1 client 12 2026-11-23T17:09:41.123Z
 *
 * Numbers of a file are consecutive. The member is `-` if the person was not a member, or if the id is unknown. The hash is keyed with
 * the account's person_key.
 */
import { parsePathId } from '../http/path-id.ts'

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
export type Numbered<Entry> = Entry & { number: number }
export type LedgerLine = Numbered<LedgerErasure>

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
