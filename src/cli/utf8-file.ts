/** Reads the lines of a text file in UTF-8. Holds one line in memory. */
import { createReadStream } from 'node:fs'
import { io } from './io.ts'

const LINE_FEED = 0x0a

export interface TextLine {
  /** from 1 */
  number: number
  /** null: the line is longer than the limit */
  text: string | null
}

/**
 * Takes time in proportion to the length of the file, and skips what a line has beyond `maxBytes`.
 * @param file `-` is standard input. Throws the file's own error, or an Error that says which line is not in UTF-8.
 */
export async function* readLines(file: string, maxBytes: number): AsyncGenerator<TextLine> {
  const input = file === '-' ? io.stdin : createReadStream(file)
  const line = new LineBytes(maxBytes)
  let number = 1
  for await (const chunk of input as AsyncIterable<Buffer>) {
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
  /** Without `fatal`, text in another encoding would be imported with replacement characters. */
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
