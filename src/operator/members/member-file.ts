/** Reads the entries of a member file: CSV or NDJSON, in UTF-8. */
import { fromCsvText } from '../../audience/member.ts'
import { BODY_MAX_BYTES } from '../../config/limits.ts'
import { FatalError, systemReason } from '../../errors.ts'
import { BEGINNING, readCsv, readLines, type TextPosition, type TextSource } from './text-file.ts'

/** The limit of a PUT of a member. 100 tags of 64 characters and 16 KiB of attributes need less than 100 KiB. */
export const LINE_MAX_BYTES = BODY_MAX_BYTES

/** The columns of a CSV file that an import reads. All others are ignored. */
const COLUMNS = ['id', 'userId', 'externalId', 'tags', 'attributes']

/** How far a file is read, so that another process can continue. */
export interface FilePosition extends TextPosition {
  /** null: the first line of a CSV file is not read yet, or the file is NDJSON */
  header: Header | null
}

interface Header {
  /** the place of each column that the import reads */
  columns: Record<string, number>
  /** number of columns */
  cells: number
  delimiter: string
}

export const FILE_BEGINNING: FilePosition = { ...BEGINNING, header: null }

export interface FileEntry {
  /** number of the line in the file, from 1 */
  line: number
  length: number
  /** the parsed entry, or a FatalError if the line cannot be parsed */
  value: unknown
  /** where the entries after this one begin */
  next: FilePosition
}

export type MemberFileFormat = 'csv' | 'ndjson'

/** The message quotes the first line of the file, which may contain personal data if it has no names of columns. */
export class ColumnsMissing extends FatalError {}

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
  const options = header === null ? {} : { record_delimiter: header.delimiter }
  for await (const { cells, line, end, delimiter } of readCsv(file, LINE_MAX_BYTES, options, from)) {
    if (header === null) {
      header = readHeader(cells, delimiter)
      continue
    }
    const length = cells.reduce((sum, cell) => sum + cell.length, 0)
    const { cells: expected } = header
    // A comma in an unquoted cell would move all following cells into other columns.
    const surplus = () =>
      new FatalError(
        `the line has ${cells.length} cells, but line 1 has ${expected}. Quote cells that contain a comma.`,
      )
    const value = cells.length > expected ? surplus() : fromCsv(header, cells)
    yield { line, length, value, next: { byte: end, line, header } }
  }
}

function readHeader(cells: string[], delimiter: string): Header {
  const names = cells.map((name) => name.trim())
  refuseDuplicates(names)
  requireUsed(names)
  const places = COLUMNS.filter((name) => names.includes(name)).map((name) => [name, names.indexOf(name)])
  return { columns: Object.fromEntries(places), cells: cells.length, delimiter }
}

function refuseDuplicates(columns: string[]): void {
  const duplicates = COLUMNS.filter((name) => columns.indexOf(name) !== columns.lastIndexOf(name))
  if (duplicates.length > 0)
    throw new FatalError(
      `line 1: several columns have the name ${duplicates.join(', ')}. Remove all but one.`,
    )
}

/** A mistyped column would be ignored, and the import would change nothing. */
function requireUsed(columns: string[]): void {
  const isNamed = (names: string[]) => names.some((name) => columns.includes(name))
  if (isNamed(['id', 'userId']) && isNamed(['externalId', 'tags', 'attributes'])) return
  throw new ColumnsMissing(
    `line 1: the columns are ${columns.map((name) => JSON.stringify(name)).join(', ')}. ` +
      'A file needs userId or id, and externalId, tags or attributes.',
  )
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

/** Reverses what the export does to a CSV row. An empty cell is a missing field, because the export writes null as empty. */
function fromCsv({ columns }: Header, cells: string[]): unknown {
  const cell = (name: string) => fromCsvText(cells[columns[name] ?? -1] ?? '') || undefined
  const json = (name: string) => {
    const text = cell(name)
    return text === undefined ? undefined : fromJson(text)
  }
  const [tags, attributes] = [json('tags'), json('attributes')]
  if (tags instanceof Error || attributes instanceof Error) {
    return new FatalError('tags or attributes are not valid JSON')
  }
  return { id: cell('id'), userId: cell('userId'), externalId: cell('externalId'), tags, attributes }
}
