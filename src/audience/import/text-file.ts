/** Reads the records of a CSV file in UTF-8. An error never quotes a cell, because it may be a secret or personal data. */
import { CsvError, type Options, parse as parseCsv } from 'csv-parse/sync'
import { systemReason } from '../../config/system-reason.ts'
import { FatalError } from '../../errors.ts'

export interface TextSource {
  name: string
  /** begins to read; the iteration throws the error of the file */
  open: () => AsyncIterable<Buffer>
}

/** A place between two lines. */
export interface TextPosition {
  /** bytes of the file before it */
  byte: number
  line: number
}

export const BEGINNING: TextPosition = { byte: 0, line: 0 }

interface CsvRecord {
  cells: string[]
  /** number of the line on which the record ends, from 1 */
  line: number
  end: number
}

/** Skips empty records. Throws a FatalError if the file cannot be read, or if a line or a record is longer than `maxBytes`. */
export async function* readCsv(
  file: TextSource,
  maxBytes: number,
  options: Options = {},
  from: TextPosition = BEGINNING,
): AsyncGenerator<CsvRecord> {
  let [line, record, quotes] = [from.line, '', 0]
  try {
    for await (const { number, text, end } of readLines(file, maxBytes, from)) {
      line = number
      if (text === null || record.length + text.length > maxBytes)
        throw new FatalError(`${file.name}, line ${line}: the line is longer than ${maxBytes} bytes.`)
      record += text
      quotes += text.split('"').length - 1
      // A quoted cell, in which each quote is doubled, goes on in the next line.
      if (quotes % 2 === 1) {
        record += '\n'
        continue
      }
      const [cells] = cellsOf(record, options)
      if (cells !== undefined) yield { cells, line, end }
      record = ''
    }
    cellsOf(record, options)
  } catch (error) {
    if (error instanceof FatalError) throw error
    if (error instanceof CsvError)
      throw new FatalError(`${file.name}, line ${line}: a quoted cell is not closed, or text follows it.`)
    throw new FatalError(`${file.name} cannot be read: ${systemReason(error)}`)
  }
}

/** What spreadsheets make of long numbers, of thousands, of digits that are text, of codes that look like a date, and of formulas. */
const DAMAGED_VALUES = [
  /^-?\d([.,]\d+)?E[+-]\d{2,3}$/,
  /^-?\d{1,3}(,\d{3})+(\.\d+)?$/,
  /^'\d+$/,
  /^(?=.*\d)(\d{1,2}-)?(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(-\d{2})?$/,
  /^#(NAME\?|N\/A|DIV\/0!|REF!|VALUE!|NUM!|NULL!|#+)$/,
]

export const isDamaged = (text: string) => DAMAGED_VALUES.some((pattern) => pattern.test(text))
export const DAMAGED = 'was changed by a spreadsheet. Format its column as text, and enter it again.'

const cellsOf = (record: string, options: Options): string[][] =>
  parseCsv(record.replace(/\r$/, ''), {
    ...options,
    record_delimiter: '\n',
    relax_column_count: true,
    skip_empty_lines: true,
  })

const LINE_FEED = 0x0a

interface TextLine {
  number: number
  /** null if the line is longer than the limit */
  text: string | null
  end: number
}

/** In linear time. Throws the error of the file, or an Error with the number of the line that is not in UTF-8. */
export async function* readLines(
  file: TextSource,
  maxBytes: number,
  from: TextPosition = BEGINNING,
): AsyncGenerator<TextLine> {
  const line = new LineBytes(maxBytes)
  let number = from.line + 1
  let chunkStart = from.byte
  for await (const chunk of file.open()) {
    let start = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      line.add(chunk.subarray(start, end))
      start = end + 1
      yield { number, text: line.take(number), end: chunkStart + start }
      number += 1
    }
    line.add(chunk.subarray(start))
    chunkStart += chunk.length
  }
  yield { number, text: line.take(number), end: chunkStart }
}

class LineBytes {
  readonly #maxBytes: number
  /** Without `fatal`, text in other encodings would be imported with replacement characters. */
  readonly #decoder = new TextDecoder('utf-8', { fatal: true })
  #parts: Buffer[] = []
  #length = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  add(part: Buffer): void {
    this.#length += part.length
    if (this.#length <= this.#maxBytes) this.#parts.push(part)
    else this.#parts = []
  }

  /** Returns the line and begins the next one. */
  take(number: number): string | null {
    const bytes = this.#length > this.#maxBytes ? null : Buffer.concat(this.#parts)
    this.#parts = []
    this.#length = 0
    try {
      return bytes && this.#decoder.decode(bytes)
    } catch {
      throw new Error(`line ${number} is not in UTF-8. Convert it, or choose its encoding.`)
    }
  }
}
