/** Reads a file of text. */
import { createReadStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'

/** The pipeline passes any error on to `output`, where the reading loop receives it. @param file `-` is standard input */
export function readInto(output: NodeJS.WritableStream, file: string): void {
  const input = file === '-' ? process.stdin : createReadStream(file)
  pipeline(input, decodeUtf8, output).catch(() => undefined)
}

/** Without `fatal`, text in another encoding would be imported with replacement characters. */
async function* decodeUtf8(input: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  try {
    for await (const chunk of input) yield decoder.decode(chunk, { stream: true })
    yield decoder.decode()
  } catch (error) {
    throw error instanceof TypeError ? new Error('it is not in UTF-8') : error
  }
}
