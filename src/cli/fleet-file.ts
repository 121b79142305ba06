/** Reads a CSV file of official accounts. A fault never quotes a cell, because it may be a secret. */
import type { WantedAccount } from '../accounts/apply.ts'
import { throwFaults } from '../accounts/apply.ts'
import type { AccountColumns } from '../accounts/provisioning.ts'
import { fromCsvText } from '../audience/member.ts'
import { FatalError } from '../errors.ts'
import { isSendable } from '../line-api/tokens.ts'
import { readCsv } from '../operator/text-file.ts'
import { isStorableText } from '../postgres/storable.ts'
import { COLUMNS, isChannelId, isUrlSegment } from './account-fields.ts'
import { fileSource } from './io.ts'

/** All accounts of a file are held in memory and added in one transaction. 10,000 accounts take about 10 s. */
const ACCOUNTS_MAX = 10_000
/** The longest value of a line is an access token of some hundred characters. */
const LINE_MAX_BYTES = 65_536

const ORGANIZATION = 'organization'
const REQUIRED_COLUMNS = [ORGANIZATION, COLUMNS.channelId]
const KNOWN_COLUMNS: string[] = [ORGANIZATION, ...Object.values(COLUMNS)]

type Column = keyof AccountColumns
type Check = { isValid: (text: string) => boolean; rule: string }

/** Checks of values that would otherwise fail later, on the platform or in a URL. */
const CHECKS: Partial<Record<Column, Check>> = {
  channel_id: {
    isValid: isChannelId,
    rule: 'must be decimal digits. It has no zero in front, and a spreadsheet may have rounded it: format the column as text.',
  },
  channel_access_token: { isValid: isSendable, rule: 'has a character that no access token has.' },
  oa_hash: { isValid: isUrlSegment, rule: 'may have letters, digits and - _ . ~ only.' },
}

interface Line {
  /** from 1 */
  number: number
  cells: string[]
}

/** @param file `-` is standard input. Throws a FatalError with all faults of the file. */
export async function readFleet(file: string): Promise<WantedAccount[]> {
  const [header, ...lines] = await readAccountLines(file)
  if (header === undefined) throw new FatalError(`${file} is empty. Its first line must name the columns.`)
  const columns = header.cells.map((cell) => cell.toLowerCase().replaceAll('-', '_'))
  const faults = headerFaults(columns)
  throwFaults(faults)
  if (lines.length === 0) throw new FatalError(`${file} has no account below its header.`)
  const accounts = lines.map((line) => readAccount(line, columns, faults))
  throwFaults(faults)
  return accounts
}

async function readAccountLines(file: string): Promise<Line[]> {
  const lines: Line[] = []
  for await (const { cells, line } of readCsv(fileSource(file), LINE_MAX_BYTES, { trim: true })) {
    if (cells.every((cell) => cell === '')) continue
    lines.push({ number: line, cells: cells.map((cell) => fromCsvText(cell.trim())) })
    if (lines.length > ACCOUNTS_MAX + 1)
      throw new FatalError(`${file} has more than ${ACCOUNTS_MAX} accounts. Split it.`)
  }
  return lines
}

function headerFaults(columns: string[]): string[] {
  const faults: string[] = []
  for (const [i, column] of columns.entries()) {
    const place = `line 1, column ${i + 1}`
    if (!KNOWN_COLUMNS.includes(column))
      faults.push(`${place}: the name is unknown. Known names: ${KNOWN_COLUMNS.join(', ')}.`)
    else if (columns.indexOf(column) < i) faults.push(`${place}: ${column} is named twice.`)
  }
  for (const column of REQUIRED_COLUMNS)
    if (!columns.includes(column)) faults.push(`line 1: the column ${column} is missing.`)
  return faults
}

function readAccount({ number, cells }: Line, columns: string[], faults: string[]): WantedAccount {
  if (cells.length !== columns.length) {
    faults.push(`line ${number}: it has ${cells.length} cells, but the header has ${columns.length}.`)
  }
  // An empty cell keeps the stored value.
  const given = columns.flatMap((column, i) => (cells[i] ? [[column, cells[i]] as const] : []))
  const values = new Map<string, string>(given)
  for (const column of REQUIRED_COLUMNS)
    if (!values.has(column)) faults.push(`line ${number}, column ${column}: it must not be empty.`)
  for (const [column, value] of values) {
    const check = CHECKS[column as Column]
    if (!isStorableText(value))
      faults.push(`line ${number}, column ${column}: it has a character that no text has.`)
    else if (check !== undefined && !check.isValid(value))
      faults.push(`line ${number}, column ${column}: it ${check.rule}`)
  }
  const { [ORGANIZATION]: organization = '', ...columnValues } = Object.fromEntries(values)
  return { line: number, organization, channelId: columnValues.channel_id ?? '', columns: columnValues }
}
