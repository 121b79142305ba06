/** Reads the entries of a member file: CSV or NDJSON, in UTF-8. */
import { BODY_MAX_BYTES } from '../../config/limits.ts'
import { systemReason } from '../../config/system-reason.ts'
import { FatalError } from '../../errors.ts'
import { fromCsvText } from '../member.ts'
import { COLUMNS, findColumnFault } from './member-columns.ts'
import {
  BEGINNING,
  DAMAGED,
  isDamaged,
  readCsv,
  readLines,
  type TextPosition,
  type TextSource,
} from './text-file.ts'

/** The limit of a PUT of a member. 100 tags of 64 characters and 16 KiB of attributes need less than 100 KiB. */
const LINE_MAX_BYTES = BODY_MAX_BYTES

/** How far a file is read, so that another process can continue. */
export interface FilePosition extends TextPosition {
  /** null: the first line of a CSV file is not read yet, or the file is NDJSON */
  header: Header | null
}

interface Header {
  /** the place of each column that the import reads */
  columns: Record<string, number>
  cells: number
}

export const FILE_BEGINNING: FilePosition = { ...BEGINNING, header: null }

export interface FileEntry {
  line: number
  length: number
  /** the parsed entry, or a FatalError if the line cannot be parsed */
  value: unknown
  next: FilePosition
}

export type MemberFileFormat = 'csv' | 'ndjson'

/** Throws a FatalError if the file cannot be read, or has no entry although it is read from its beginning. */
export async function* readEntries(
  file: TextSource,
  format: MemberFileFormat,
  from: FilePosition = FILE_BEGINNING,
): AsyncGenerator<FileEntry> {
  let isEmpty = from.byte === 0
  for await (const entry of format === 'csv' ? readCsvEntries(file, from) : readNdjson(file, from)) {
    isEmpty = false
    yield entry
  }
  if (isEmpty)
    throw new FatalError(`${file.name} has no entry. Check whether the program that wrote it failed.`)
}

async function* readCsvEntries(file: TextSource, from: FilePosition): AsyncGenerator<FileEntry> {
  let { header } = from
  for await (const { cells, line, end } of readCsv(file, LINE_MAX_BYTES, {}, from)) {
    if (header === null) {
      header = readHeader(cells)
      continue
    }
    const length = cells.reduce((sum, cell) => sum + cell.length, 0)
    const { cells: expected } = header
    // A comma in an unquoted cell would move all following cells into other columns.
    const surplus = `the line has ${cells.length} cells, but line 1 has ${expected}. Quote cells that contain a comma.`
    const value = cells.length > expected ? new FatalError(surplus) : fromCsv(header, cells)
    yield { line, length, value, next: { byte: end, line, header } }
  }
}

function readHeader(cells: string[]): Header {
  const names = cells.map((name) => name.trim())
  requireColumns(names)
  const places = COLUMNS.filter((name) => names.includes(name)).map((name) => [name, names.indexOf(name)])
  return { columns: Object.fromEntries(places), cells: cells.length }
}

function requireColumns(names: string[]): void {
  const fault = findColumnFault(names)
  if (fault?.kind === 'repeated')
    throw new FatalError(
      `line 1: several columns have the name ${fault.columns.join(', ')}. Remove all but one.`,
    )
  // The console and the command have texts for it. A line without names of columns may contain personal data.
  if (fault !== null) throw new FatalError('columns_missing')
}

async function* readNdjson(file: TextSource, from: FilePosition): AsyncGenerator<FileEntry> {
  try {
    for await (const { number: line, text, end } of readLines(file, LINE_MAX_BYTES, from)) {
      const next = { byte: end, line, header: null }
      if (text === null) {
        const value = new FatalError(`the line is longer than ${LINE_MAX_BYTES} bytes`)
        yield { line, length: LINE_MAX_BYTES, value, next }
      } else if (text.trim() !== '') yield { line, length: text.length, value: fromJson(text.trim()), next }
    }
  } catch (error) {
    throw new FatalError(`${file.name} cannot be read: ${systemReason(error)}`)
  }
}

function fromJson(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return new FatalError('the line is not valid JSON')
  }
}

/** A cell of JSON, as the export writes it. All other tags are plain, although `[` could begin the name of a tag. */
const JSON_TAGS = /^\s*(\[|\{|"|null\s*$)/

/** Reverses what the export does to a CSV row. An empty cell is a missing field, because the export writes null as empty. */
function fromCsv({ columns }: Header, cells: string[]): unknown {
  const raw = (name: string) => cells[columns[name] ?? -1] ?? ''
  const cell = (name: string) => fromCsvText(raw(name)) || undefined
  const json = (text: string | undefined) => (text === undefined ? undefined : fromJson(text))
  const given = cell('tags')
  const isPlain = given !== undefined && !JSON_TAGS.test(given)
  const plain = isPlain ? plainTags(given) : undefined
  const [tags, attributes] = [isPlain ? plain : json(given), json(cell('attributes'))]
  if (tags instanceof Error)
    return new FatalError('tags are neither a JSON array nor names that are separated by semicolons')
  if (attributes instanceof Error) return new FatalError('attributes are not valid JSON')
  if (isDamaged(raw('externalId'))) return new FatalError(`externalId ${DAMAGED}`)
  if (plain?.some(isDamaged)) return new FatalError(`a tag ${DAMAGED}`)
  return { id: cell('id'), userId: cell('userId'), externalId: cell('externalId'), tags, attributes }
}

/** `gold;autumn`, as people write them into a spreadsheet. Without a name, the cell is as if it were empty. */
function plainTags(text: string): string[] | undefined {
  const names = text.split(';').map((name) => name.trim())
  const tags = [...new Set(names.filter((name) => name !== ''))]
  return tags.length === 0 ? undefined : tags
}
