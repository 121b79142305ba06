/** Reads the records of a CSV file in UTF-8. An error never quotes a cell, because it may be a secret or personal data. */

import { pipeline } from 'node:stream/promises'
import { type Options, type Parser, parse as parseCsv } from 'csv-parse'
import { FatalError } from '../../errors.ts'
import { systemReason } from '../../system-reason.ts'

const CHUNK_LENGTH = 16 * 1024

export interface TextSource {
  /** for error messages */
  name: string
  /** begins to read; the iteration throws the error of the file */
  open: () => AsyncIterable<Buffer>
}

/** A place between two lines. */
export interface TextPosition {
  /** bytes of the file before it */
  byte: number
  /** lines of the file before it */
  line: number
}

export const BEGINNING: TextPosition = { byte: 0, line: 0 }

interface CsvRecord {
  cells: string[]
  /** number of the line on which the record ends, from 1 */
  line: number
  /** bytes of the file before the next record */
  end: number
  /** of the file's lines, which the first record determines */
  delimiter: string
}

type CsvFault = { code?: string; message: string; lines?: number }

/**
 * Yields records that are not empty. Records may have any number of cells.
 * Throws a FatalError if the file cannot be read, or if a line or a record is longer than `maxBytes`.
 */
export async function* readCsv(
  file: TextSource,
  maxBytes: number,
  options: Options = {},
  from: TextPosition = BEGINNING,
): AsyncGenerator<CsvRecord> {
  const parsed = parseCsv({
    ...options,
    info: true,
    relax_column_count: true,
    skip_empty_lines: true,
    // Quotes can spread the cells of a record over many lines. Empty cells have no length, so their length does not limit their number.
    max_record_size: maxBytes,
  })
  const reading: Reading = { from, longLine: null, markBytes: 0 }
  // The pipeline passes any error on to the loop.
  pipeline(limitedText(file, maxBytes, reading), parsed).catch(() => undefined)
  try {
    for await (const { record, info } of parsed as AsyncIterable<ParsedRecord>) {
      const end = from.byte + reading.markBytes + info.bytes
      yield { cells: record, line: from.line + info.lines, end, delimiter: delimiterOf(parsed) }
    }
  } catch (error) {
    if (reading.longLine === null) throw unreadable(file.name, maxBytes, from, error as CsvFault)
  }
  if (reading.longLine !== null) throw tooLong(file.name, reading.longLine, maxBytes)
}

interface ParsedRecord {
  record: string[]
  info: { lines: number; bytes: number }
}

/** The parser finds out how lines end when it reads the first one. */
const delimiterOf = ({ options }: Parser) => String((options.record_delimiter as Buffer[])[0] ?? '\n')

interface Reading {
  from: TextPosition
  /** the number of a line that is too long */
  longLine: number | null
  /** length of the byte order mark, which the text does not contain */
  markBytes: number
}

/** Ends before a line that is too long. An error would discard the records that the parser has buffered. */
async function* limitedText(file: TextSource, maxBytes: number, reading: Reading): AsyncGenerator<string> {
  const { from } = reading
  let text = ''
  for await (const { number, text: line, hasMark } of readLines(file, maxBytes, from)) {
    if (line === null) {
      reading.longLine = number
      break
    }
    if (hasMark) reading.markBytes = MARK_BYTES
    text += number === from.line + 1 ? line : `\n${line}`
    // The parser takes as long for a short chunk as for a hundred lines.
    if (text.length < CHUNK_LENGTH) continue
    yield text
    text = ''
  }
  yield text
}

function tooLong(file: string, line: number | undefined, maxBytes: number): FatalError {
  return new FatalError(`${file}, line ${line}: the line is longer than ${maxBytes} bytes.`)
}

/** The parser's own messages quote cells. */
function unreadable(file: string, maxBytes: number, from: TextPosition, fault: CsvFault): FatalError {
  const { code, lines = 0 } = fault
  const line = from.line + lines
  if (code === 'CSV_MAX_RECORD_SIZE') return tooLong(file, line, maxBytes)
  if (code?.startsWith('CSV_'))
    return new FatalError(`${file}, line ${line}: a quoted cell is not closed, or text follows it.`)
  return new FatalError(`${file} cannot be read: ${systemReason(fault)}`)
}

const LINE_FEED = 0x0a

interface TextLine {
  /** from 1 */
  number: number
  /** null if the line is longer than the limit */
  text: string | null
  /** bytes of the file before the next line */
  end: number
  /** The line began with a byte order mark, which the text does not contain. */
  hasMark: boolean
}

const MARK = '\uFEFF'
const MARK_BYTES = 3

/**
 * Takes time proportional to the length of the file, and skips the bytes of a line beyond `maxBytes`.
 * Throws the error of the file, or an Error with the number of the line that is not in UTF-8.
 */
export async function* readLines(
  file: TextSource,
  maxBytes: number,
  from: TextPosition = BEGINNING,
): AsyncGenerator<TextLine> {
  const line = new LineBytes(maxBytes)
  let number = from.line + 1
  let chunkStart = from.byte
  const take = (end: number): TextLine => {
    const text = line.take(number)
    const hasMark = number === 1 && text?.startsWith(MARK) === true
    return { number, text: hasMark ? text.slice(MARK.length) : text, end, hasMark }
  }
  for await (const chunk of file.open()) {
    let start = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      line.add(chunk.subarray(start, end))
      start = end + 1
      yield take(chunkStart + start)
      number += 1
    }
    line.add(chunk.subarray(start))
    chunkStart += chunk.length
  }
  yield take(chunkStart)
}

class LineBytes {
  readonly #maxBytes: number
  /** Without `fatal`, text in other encodings would be imported with replacement characters. */
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
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
      throw new Error(`line ${number} is not in UTF-8`)
    }
  }
}
