/** Reads the entries of a member file: CSV or NDJSON, in UTF-8. */
import { fromCsvText } from '../audience/member.ts'
import { BODY_MAX_BYTES } from '../config/limits.ts'
import { FatalError } from '../errors.ts'
import { readCsv, readLines } from '../operator/text-file.ts'
import { fileSource } from './io.ts'

/** The limit of a PUT of a member. 100 tags of 64 characters and 16 KiB of attributes need less than 100 KiB. */
export const LINE_MAX_BYTES = BODY_MAX_BYTES

/** The columns of a CSV file that an import reads. All others are ignored. */
const COLUMNS = ['id', 'userId', 'externalId', 'tags', 'attributes']

export interface FileEntry {
  /** number of the line in the file, from 1 */
  line: number
  length: number
  /** the parsed entry, or a FatalError if the line cannot be parsed */
  value: unknown
}

/** @param file `-` is standard input. Throws a FatalError if the file cannot be read or has no entry. */
export async function* readEntries(file: string): AsyncGenerator<FileEntry> {
  let isEmpty = true
  for await (const entry of file.toLowerCase().endsWith('.csv') ? readCsvEntries(file) : readNdjson(file)) {
    isEmpty = false
    yield entry
  }
  if (isEmpty) throw new FatalError(`${file} has no entry. Check whether the program that wrote it failed.`)
}

async function* readCsvEntries(file: string): AsyncGenerator<FileEntry> {
  let columns: string[] | null = null
  for await (const { cells, line } of readCsv(fileSource(file), LINE_MAX_BYTES)) {
    if (columns === null) {
      columns = cells.map((name) => name.trim())
      refuseDuplicates(columns)
      requireUsed(columns)
      continue
    }
    const length = cells.reduce((sum, cell) => sum + cell.length, 0)
    const { length: expected } = columns
    // A comma in an unquoted cell would move all following cells into other columns.
    const surplus = () =>
      new FatalError(
        `the line has ${cells.length} cells, but line 1 has ${expected}. Quote cells that contain a comma.`,
      )
    yield { line, length, value: cells.length > expected ? surplus() : fromCsv(columns, cells) }
  }
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
  throw new FatalError(
    `line 1: the columns are ${columns.map((name) => JSON.stringify(name)).join(', ')}. ` +
      'A file needs userId or id, and externalId, tags or attributes.',
  )
}

async function* readNdjson(file: string): AsyncGenerator<FileEntry> {
  try {
    for await (const { number: line, text } of readLines(fileSource(file), LINE_MAX_BYTES)) {
      if (text === null) {
        const value = new FatalError(`the line is longer than ${LINE_MAX_BYTES} bytes`)
        yield { line, length: LINE_MAX_BYTES, value }
      } else if (text.trim() !== '') yield { line, length: text.length, value: fromJson(text) }
    }
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    throw new FatalError(`${file} cannot be read (${code ?? message})`)
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
function fromCsv(columns: string[], cells: string[]): unknown {
  const cell = (name: string) => fromCsvText(cells[columns.indexOf(name)] ?? '') || undefined
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
