/** Reads an erasure ledger: a directory in which each process that erases people has its own append-only files. */
import { constants, createReadStream } from 'node:fs'
import { access, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { FatalError } from '../errors.ts'
import { LEDGER_HEADER, LEDGER_LINE_MAX_BYTES, type LedgerLine, parseLedgerLine } from './ledger-line.ts'

/** Other files of the directory are ignored. */
export const LEDGER_FILE_SUFFIX = '.ledger'

/** 1 MiB. A power failure during an append may leave zeros at the end. A longer end without a line feed is other damage. */
const UNTERMINATED_MAX_CHARACTERS = 1024 * 1024

type SystemError = Error & { code?: string }

/** Throws a FatalError of one line if the directory cannot be used. A missing one is not created, because it may not be mounted. */
export async function requireLedger(directory: string): Promise<void> {
  try {
    if (!(await stat(directory)).isDirectory()) throw Object.assign(new Error(), { code: 'ENOTDIR' })
    await access(directory, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    const { code } = error as SystemError
    throw new FatalError(
      `ERASURE_LEDGER ${directory} cannot be used (${code}). Create or mount this directory, and let the service write to it.`,
    )
  }
}

/** Paths of all files, sorted by name. */
export async function listLedgerFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch((error: SystemError) => {
    throw new FatalError(`ERASURE_LEDGER ${directory} cannot be read (${error.code}).`)
  })
  return names
    .filter((name) => name.endsWith(LEDGER_FILE_SUFFIX))
    .sort()
    .map((name) => join(directory, name))
}

/**
 * Yields all lines of a file. An unterminated last line is ignored: it is being written, or its write failed, and its erasure was not
 * confirmed. Throws a FatalError that names the file and the line if another line is malformed.
 */
export async function* readLedgerFile(path: string): AsyncGenerator<LedgerLine> {
  const checker = new LineChecker(path)
  let rest = ''
  try {
    for await (const chunk of createReadStream(path, 'latin1')) {
      const texts = (rest + chunk).split('\n')
      rest = texts.pop() ?? ''
      for (const text of texts) {
        const line = checker.check(text)
        if (line !== null) yield line
      }
      if (rest.length > UNTERMINATED_MAX_CHARACTERS) checker.check(rest)
    }
  } catch (error) {
    throw explain(path, error)
  }
}

/** Checks the lines of a file one after the other. */
class LineChecker {
  readonly #path: string
  #lines = 0
  #number: number | null = null

  constructor(path: string) {
    this.#path = path
  }

  /** Returns null for the header. */
  check(text: string): LedgerLine | null {
    this.#lines += 1
    if (this.#lines === 1) {
      if (`${text}\n` !== LEDGER_HEADER) throw this.#malformed()
      return null
    }
    const line = parseLedgerLine(text)
    if (line === null || (this.#number !== null && line.number !== this.#number + 1)) throw this.#malformed()
    this.#number = line.number
    return line
  }

  #malformed(): FatalError {
    return new FatalError(
      `${this.#path}, line ${this.#lines} is not a line of an erasure ledger. Restore the file from a copy, or remove the line if ` +
        'its erasure is not needed.',
    )
  }
}

/** Returns up to `count` lines at the end of a file without reading the others. */
export async function readLastLines(path: string, count: number): Promise<LedgerLine[]> {
  const bytes = count * LEDGER_LINE_MAX_BYTES + LEDGER_HEADER.length
  let { text, isWhole } = await readEnd(path, bytes)
  // An unterminated last line takes the place of others.
  if (!isWhole && text.split('\n').length - 2 < count)
    ({ text, isWhole } = await readEnd(path, bytes + UNTERMINATED_MAX_CHARACTERS))
  const texts = text.split('\n').slice(0, -1)
  // The first text is the header or the end of a line.
  const lines = texts.slice(1).slice(-count).map(parseLedgerLine)
  const isWellFormed =
    lines.every(
      (line, at) => line !== null && (at === 0 || line.number === (lines[at - 1]?.number ?? 0) + 1),
    ) && (isWhole ? texts.length === 0 || `${texts[0]}\n` === LEDGER_HEADER : lines.length > 0)
  if (!isWellFormed) {
    // Reads the whole file for the number of the malformed line.
    for await (const _ of readLedgerFile(path));
  }
  return lines.filter((line) => line !== null)
}

async function readEnd(path: string, maxBytes: number): Promise<{ text: string; isWhole: boolean }> {
  try {
    const file = await open(path)
    try {
      const { size } = await file.stat()
      const start = Math.max(0, size - maxBytes)
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - start), 0, size - start, start)
      return { text: buffer.toString('latin1', 0, bytesRead), isWhole: start === 0 }
    } finally {
      await file.close()
    }
  } catch (error) {
    throw explain(path, error)
  }
}

function explain(path: string, error: unknown): Error {
  if (error instanceof FatalError) return error
  return new FatalError(
    `${path} cannot be read (${(error as SystemError).code ?? (error as Error).message}).`,
  )
}
