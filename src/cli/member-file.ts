/** Reads the entries of a member file: CSV or NDJSON, in UTF-8. */
import { PassThrough } from 'node:stream'
import { parse as parseCsv } from 'csv-parse'
import { fromCsvText } from '../audience/member.ts'
import { FatalError } from '../errors.ts'
import { readInto } from './utf8-file.ts'

export interface FileEntry {
  /** number of the line in the file, from 1 */
  line: number
  /** the parsed entry, or a FatalError if the line cannot be parsed */
  value: unknown
}

/** @param file `-` is standard input. Throws a FatalError if the file cannot be read. */
export async function* readEntries(file: string): AsyncGenerator<FileEntry> {
  try {
    if (file.toLowerCase().endsWith('.csv')) yield* readCsv(file)
    else yield* readNdjson(file)
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    throw new FatalError(`${file} cannot be read (${code?.startsWith('CSV_') ? message : (code ?? message)})`)
  }
}

interface CsvRow {
  record: Record<string, string>
  info: { lines: number }
}

async function* readCsv(file: string): AsyncGenerator<FileEntry> {
  const parsed = parseCsv({ columns: true, bom: true, info: true, relax_column_count: true })
  readInto(parsed, file)
  for await (const { record, info } of parsed as AsyncIterable<CsvRow>) {
    yield { line: info.lines, value: fromCsv(record) }
  }
}

async function* readNdjson(file: string): AsyncGenerator<FileEntry> {
  const text = new PassThrough({ encoding: 'utf8' })
  readInto(text, file)
  let line = 0
  for await (const content of linesOf(text as AsyncIterable<string>)) {
    line += 1
    if (content.trim() !== '') yield { line, value: fromJson(content) }
  }
}

/** Throws the errors of the stream. `readline` would never end after one. */
async function* linesOf(input: AsyncIterable<string>): AsyncGenerator<string> {
  let incomplete = ''
  for await (const chunk of input) {
    const lines = (incomplete + chunk).split('\n')
    incomplete = lines.pop() ?? ''
    yield* lines
  }
  yield incomplete
}

function fromJson(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return new FatalError('the line is not valid JSON')
  }
}

/** Reverses what the export does to a CSV row. An empty cell is a missing field, because the export writes null as empty. */
function fromCsv(record: Record<string, string>): unknown {
  const cell = (name: string) => fromCsvText(record[name] ?? '') || undefined
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
