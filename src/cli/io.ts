/** Input and output of a command, apart from the database. */
import { AsyncLocalStorage } from 'node:async_hooks'
import { createReadStream } from 'node:fs'
import { styleText } from 'node:util'
import { Option } from 'commander'
import stringWidth from 'string-width'
import { ENCODINGS, type Encoding } from '../audience/import/encodings.ts'
import type { TextSource } from '../audience/import/text-file.ts'
import { toJson } from '../ids.ts'

export interface Io {
  env: Record<string, string | undefined>
  stdin: NodeJS.ReadableStream & { isTTY?: boolean }
  stdout: NodeJS.WritableStream & { isTTY?: boolean }
  stderr: NodeJS.WritableStream & { isTTY?: boolean }
  /** 1 if the command failed, or if its result is negative */
  exitCode?: NodeJS.Process['exitCode']
}

const running = new AsyncLocalStorage<Io>()
const current = (): Io => running.getStore() ?? process

/**
 * Runs a command with its own input and output. Tests run several in one process. With those of the process, no storage is used: from its
 * first use on, it costs every promise, which is a fifth of what the service needs for a delivery on Node 20.
 */
export const withIo = <T>(given: Io, command: () => Promise<T>): Promise<T> =>
  given === process ? command() : running.run(given, command)

/** Input and output of the running command: those of the process, unless it runs in `withIo`. */
export const io: Io = {
  get env() {
    return current().env
  },
  get stdin() {
    return current().stdin
  },
  get stdout() {
    return current().stdout
  },
  get stderr() {
    return current().stderr
  },
  get exitCode() {
    return current().exitCode
  },
  set exitCode(code) {
    current().exitCode = code
  },
}

export const encodingOption = () =>
  new Option('--encoding <name>', 'encoding of the file').choices(Object.keys(ENCODINGS)).default('utf-8')

/** @param file `-` is standard input */
export function fileSource(file: string, encoding: Encoding = 'utf-8'): TextSource {
  const open = () => (file === '-' ? io.stdin : createReadStream(file)) as AsyncIterable<Buffer>
  return { name: file, open: () => (encoding === 'utf-8' ? open() : inUtf8(open(), ENCODINGS[encoding])) }
}

async function* inUtf8(bytes: AsyncIterable<Buffer>, encoding: string): AsyncGenerator<Buffer> {
  const decoder = new TextDecoder(encoding, { fatal: true })
  const decode = (chunk?: Buffer) => {
    try {
      return Buffer.from(decoder.decode(chunk, { stream: chunk !== undefined }))
    } catch {
      throw new Error(`it is not in ${encoding}. Choose another encoding.`)
    }
  }
  for await (const chunk of bytes) yield decode(chunk)
  yield decode()
}

const NOUNS =
  'accounts activity audience clients endpoints erasures events jobs keys links members notifications operators organizations'
const VERBS =
  'backup demo doctor fleet health migrate prove report restore secrets segments serve setup simulate'
const COMMAND = new RegExp(`\\boa-audience (?=(${`${NOUNS} ${VERBS}`.replaceAll(' ', '|')})\\b)`, 'g')

/** Commands in messages. A program that npm runs, such as in a checkout, is not on the PATH of a shell. */
const asCalled = (text: string) => (io.env.npm_command ? text.replaceAll(COMMAND, 'npx --no $&') : text)

export function print(text = ''): void {
  io.stdout.write(`${asCalled(text)}\n`)
}

export function printError(text: string): void {
  io.stderr.write(`${asCalled(text)}\n`)
}

export type Printable = Record<string, unknown>

export function printOne(item: Printable): void {
  const width = Math.max(...Object.keys(item).map((name) => name.length))
  for (const [name, value] of Object.entries(item)) print(`${name.padEnd(width)}  ${forTerminal(value)}`)
}

export function printMany(items: Printable[]): void {
  const [first] = items
  if (first === undefined) {
    print('none')
    return
  }
  const names = Object.keys(first)
  const texts = [names, ...items.map((item) => names.map((name) => forTerminal(item[name])))]
  // Widths in terminal columns. A Japanese character takes two, and a Thai vowel above another character takes none.
  const rows = texts.map((row) => row.map((text) => ({ text, width: stringWidth(text) })))
  const widths = names.map((_, column) => maxOf(rows.map((row) => row[column]?.width ?? 0)))
  for (const row of rows) {
    const cells = row.map(({ text, width }, column) => text + ' '.repeat((widths[column] ?? 0) - width))
    print(cells.join('  ').trimEnd())
  }
}

/** Math.max takes a limited number of arguments. */
const maxOf = (numbers: number[]) => numbers.reduce((max, each) => Math.max(max, each), 0)

/** Escapes control characters. Anybody can send tracking events, and control characters could rewrite the screen or forge rows. */
function forTerminal(value: unknown): string {
  const isList = Array.isArray(value) && typeof value[0] !== 'object'
  const text = isList ? value.join(', ') : typeof value === 'object' && value ? toJson(value) : value
  return String(text ?? '-').replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches control characters on purpose
    /[\u0000-\u001f\u007f-\u009f]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

export function printJson(value: unknown): void {
  print(toJson(value))
}

/** Styles text on a terminal. A pipe or a file gets plain text, which `styleText` of Node 20 does not ensure. */
export function styled(format: Parameters<typeof styleText>[0], text: string): string {
  return io.stdout.isTTY ? styleText(format, text) : text
}
