/** Secrets from standard input. Arguments are visible to every user of the machine in the list of processes. */
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import { FatalError } from '../errors.ts'
import { io } from './io.ts'

/** The value of an option whose secret is on standard input. */
const FROM_STANDARD_INPUT = '-'

/**
 * Replaces each `-` among the named options by one line of standard input, in the order of the options on the command line.
 * Throws a FatalError if a line is missing or empty.
 */
export async function readSecrets<O extends Record<string, unknown>>(
  options: O,
  flags: Record<string, string>,
): Promise<O> {
  // Commander adds an option when it parses it, so the object has the order of the command line.
  const names = Object.keys(options).filter(
    (name) => Object.hasOwn(flags, name) && options[name] === FROM_STANDARD_INPUT,
  )
  if (names.length === 0) return options
  const lines = await readLines(names.map((name) => flags[name] ?? name))
  return { ...options, ...Object.fromEntries(names.map((name, i) => [name, lines[i]])) }
}

async function readLines(flags: string[]): Promise<string[]> {
  const isTerminal = io.stdin.isTTY === true
  // A terminal's input is echoed to the output, which discards it.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() })
  const input = createInterface({ input: io.stdin, output, terminal: isTerminal })
  input.on('SIGINT', () => process.exit(130))
  const iterator = input[Symbol.asyncIterator]()
  const lines: string[] = []
  try {
    for (const flag of flags) {
      if (isTerminal) io.stderr.write(`${flag}: `)
      const { value } = await iterator.next()
      if (isTerminal) io.stderr.write('\n')
      if (typeof value !== 'string' || value === '') {
        throw new FatalError(
          `standard input has no line for ${flag}. Write one line for each secret, in the order of the options.`,
        )
      }
      lines.push(value)
    }
    return lines
  } finally {
    input.close()
  }
}
