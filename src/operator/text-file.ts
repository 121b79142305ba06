/** Reads the records of a CSV file in UTF-8. An error never quotes a cell, because it may be a secret or personal data. */

import { pipeline } from 'node:stream/promises'
import { type Options, parse as parseCsv } from 'csv-parse'
import { FatalError } from '../errors.ts'

const CHUNK_LENGTH = 16 * 1024

export interface TextSource {
  /** for error messages */
  name: string
  /** begins to read; the iteration throws the error of the file */
  open: () => AsyncIterable<Buffer>
}

export interface CsvRecord {
  cells: string[]
  /** number of the line on which the record ends, from 1 */
  line: number
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
): AsyncGenerator<CsvRecord> {
  const parsed = parseCsv({
    ...options,
    info: true,
    relax_column_count: true,
    skip_empty_lines: true,
    // Quotes can spread the cells of a record over many lines. Empty cells have no length, so their length does not limit their number.
    max_record_size: maxBytes,
  })
  let longLine: number | null = null
  const text = limitedText(file, maxBytes, (line) => {
    longLine = line
  })
  // The pipeline passes any error on to the loop.
  pipeline(text, parsed).catch(() => undefined)
  try {
    for await (const { record, info } of parsed as AsyncIterable<{
      record: string[]
      info: { lines: number }
    }>)
      yield { cells: record, line: info.lines }
  } catch (error) {
    if (longLine === null) throw unreadable(file.name, maxBytes, error as CsvFault)
  }
  if (longLine !== null) throw tooLong(file.name, longLine, maxBytes)
}

/** Ends before a line that is too long. An error would discard the records that the parser has buffered. */
async function* limitedText(
  file: TextSource,
  maxBytes: number,
  onLongLine: (line: number) => void,
): AsyncGenerator<string> {
  let text = ''
  for await (const { number, text: line } of readLines(file, maxBytes)) {
    if (line === null) {
      onLongLine(number)
      break
    }
    text += number === 1 ? line : `\n${line}`
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
function unreadable(file: string, maxBytes: number, { code, message, lines }: CsvFault): FatalError {
  if (code === 'CSV_MAX_RECORD_SIZE') return tooLong(file, lines, maxBytes)
  if (code?.startsWith('CSV_'))
    return new FatalError(`${file}, line ${lines}: a quoted cell is not closed, or text follows it.`)
  return new FatalError(`${file} cannot be read (${code ?? message})`)
}

const LINE_FEED = 0x0a

export interface TextLine {
  /** from 1 */
  number: number
  /** null if the line is longer than the limit */
  text: string | null
}

/**
 * Takes time proportional to the length of the file, and skips the bytes of a line beyond `maxBytes`.
 * Throws the error of the file, or an Error with the number of the line that is not in UTF-8.
 */
export async function* readLines(file: TextSource, maxBytes: number): AsyncGenerator<TextLine> {
  const line = new LineBytes(maxBytes)
  let number = 1
  for await (const chunk of file.open()) {
    let start = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      line.add(chunk.subarray(start, end))
      yield { number, text: line.take(number) }
      number += 1
      start = end + 1
    }
    line.add(chunk.subarray(start))
  }
  yield { number, text: line.take(number) }
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
      throw new Error(`line ${number} is not in UTF-8`)
    }
  }
}
