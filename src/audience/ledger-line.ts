/**
 * The lines of an erasure ledger. A file begins with LEDGER_HEADER. Each further line is one erasure:
 *
 *   number account member hash time
 *   1 7 25413876123456 5f…(64 hexadecimal digits)…0a 2026-11-23T17:09:41.123Z
 *
 * Numbers of a file are consecutive. The member is `-` if the person was not a member, or if the id is unknown. The hash is keyed with
 * the account's person_key.
 */
import { parsePathId } from '../http/path-id.ts'

export const LEDGER_HEADER = 'oa-audience erasure ledger 1\n'

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

export interface LedgerLine extends LedgerErasure {
  /** running number in the file */
  number: number
}

export function formatLedgerLine({ number, accountId, memberId, hash, erasedAt }: LedgerLine): string {
  return `${number} ${accountId} ${memberId ?? '-'} ${hash} ${new Date(erasedAt).toISOString()}\n`
}

const LINE =
  /^([1-9]\d{0,15}) (-?\d{1,19}) (-|-?\d{1,19}) ([0-9a-f]{64}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/

/** Returns null if the text, without its line feed, is not a line that formatLedgerLine writes. */
export function parseLedgerLine(text: string): LedgerLine | null {
  const [, number = '', account = '', member = '', hash = '', time = ''] = LINE.exec(text) ?? []
  const accountId = parsePathId(account)
  const memberId = member === '-' ? null : parsePathId(member)
  const erasedAt = Date.parse(time)
  if (accountId === null || (memberId === null && member !== '-') || Number.isNaN(erasedAt)) return null
  const line = { number: Number(number), accountId, memberId, hash, erasedAt }
  // Dates such as February 30 are normalized by Date.parse.
  return formatLedgerLine(line) === `${text}\n` ? line : null
}
