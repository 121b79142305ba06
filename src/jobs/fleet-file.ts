/** Reads a CSV file of official accounts. A fault never quotes a cell, because it may be a secret. */
import { askLine, FIELDS, type Field, faultOf, REFUSED } from '../accounts/account-fields.ts'
import { COLUMNS } from '../accounts/provisioning.ts'
import { DAMAGED, isDamaged, readCsv, type TextSource } from '../audience/import/text-file.ts'
import { fromCsvText } from '../audience/member.ts'
import { FatalError } from '../errors.ts'
import type { LineApi } from '../line-api/client.ts'
import { type FileFault, type Plan, throwFaults, type WantedAccount } from './apply-accounts.ts'

/** All accounts of a file are held in memory and added in one transaction. 10,000 accounts take about 10 s. */
const ACCOUNTS_MAX = 10_000
/** The longest value of a line is an access token of some hundred characters. */
const LINE_MAX_BYTES = 65_536

const ORGANIZATION = 'organization'
const REQUIRED_COLUMNS = [ORGANIZATION, COLUMNS.channelId]
const KNOWN_COLUMNS: string[] = [ORGANIZATION, ...Object.values(COLUMNS)]
const FIELD_OF = new Map<string, Field>(FIELDS.map((field) => [COLUMNS[field], field]))

interface Line {
  number: number
  cells: string[]
}

/**
 * Throws a RefusedFile with all faults of the file, or a FatalError.
 * @param found collects the faults of lines instead, for planAccounts
 */
export async function readFleet(file: TextSource, found?: FileFault[]): Promise<WantedAccount[]> {
  const [header, ...lines] = await readAccountLines(file)
  if (header === undefined)
    throw new FatalError(`${file.name} is empty. Its first line must name the columns.`)
  const columns = header.cells.map((cell) => cell.toLowerCase().replaceAll('-', '_'))
  const faults = headerFaults(columns)
  throwFaults(faults)
  if (lines.length === 0) throw new FatalError(`${file.name} has no account below its header.`)
  const accounts = lines.map((line) => readAccount(line, columns, found ?? faults))
  throwFaults(faults)
  return accounts
}

async function readAccountLines(file: TextSource): Promise<Line[]> {
  const lines: Line[] = []
  for await (const { cells, line } of readCsv(file, LINE_MAX_BYTES, { trim: true })) {
    if (cells.every((cell) => cell === '')) continue
    lines.push({ number: line, cells: cells.map((cell) => fromCsvText(cell.trim())) })
    if (lines.length > ACCOUNTS_MAX + 1)
      throw new FatalError(`${file.name} has more than ${ACCOUNTS_MAX} accounts. Split it.`)
  }
  return lines
}

function headerFaults(columns: string[]): FileFault[] {
  const faults: FileFault[] = []
  for (const [i, column] of columns.entries()) {
    const place = { line: 1, column: String(i + 1) }
    if (!KNOWN_COLUMNS.includes(column))
      faults.push({ ...place, message: `the name is unknown. Known names: ${KNOWN_COLUMNS.join(', ')}.` })
    else if (columns.indexOf(column) < i) faults.push({ ...place, message: `${column} is named twice.` })
  }
  for (const column of REQUIRED_COLUMNS)
    if (!columns.includes(column))
      faults.push({ line: 1, column: null, message: `the column ${column} is missing.` })
  return faults
}

function readAccount({ number: line, cells }: Line, columns: string[], faults: FileFault[]): WantedAccount {
  if (cells.length !== columns.length) {
    const message = `it has ${cells.length} cells, but the header has ${columns.length}.`
    faults.push({ line, column: null, message })
  }
  // An empty cell keeps the stored value.
  const given = columns.flatMap((column, i) => (cells[i] ? [[column, cells[i]] as const] : []))
  const values = new Map<string, string>(given)
  for (const column of REQUIRED_COLUMNS)
    if (!values.has(column)) faults.push({ line, column, message: 'it must not be empty.' })
  for (const [column, value] of values) {
    const damage = column !== COLUMNS.name && isDamaged(value) ? DAMAGED : null
    const fault = damage ?? faultOf(FIELD_OF.get(column) ?? 'name', value)
    if (fault !== null) faults.push({ line, column, message: `it ${fault}` })
  }
  const { [ORGANIZATION]: organization = '', ...columnValues } = Object.fromEntries(values)
  return { line, organization, channelId: columnValues.channel_id ?? '', columns: columnValues }
}

/** LINE allows 2,000 a second. */
const PROOFS_AT_ONCE = 20
/** 10,000 × 0.1 s ÷ 20 = 50 s. With a last call of 6 s, a console's request ends before a proxy gives up after 60 s. */
const PROOFS_MAX_MS = 50_000

/**
 * Asks LINE about new channel secrets until it does not respond once, or the time is over. Throws a RefusedFile with refused lines.
 * @returns the number of lines that are not proven
 */
export async function provePlans(lineApi: LineApi, plans: Plan[]): Promise<number> {
  const asked = plans.filter(({ changes, columns }) => 'channelSecret' in changes && columns.channel_secret)
  const endMs = Date.now() + PROOFS_MAX_MS
  const faults: FileFault[] = []
  const remaining = asked.values()
  let proven = 0
  let isResponding = true
  const worker = async () => {
    for (const { line, channelId, columns } of remaining) {
      if (!isResponding || Date.now() > endMs) return
      const proof = await askLine(lineApi, { ...columns, channel_id: channelId })
      if (proof === 'refused') faults.push({ line, column: 'channel_secret', message: REFUSED })
      if (proof === 'unproven') isResponding = false
      if (proof === 'proven') proven += 1
    }
  }
  await Promise.all(Array.from({ length: PROOFS_AT_ONCE }, worker))
  throwFaults(faults.sort((a, b) => a.line - b.line))
  return asked.length - proven
}
