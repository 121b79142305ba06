/** Prompts for values, and secrets from standard input. */
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import { FatalError } from '../errors.ts'
import { io } from './io.ts'

export interface Question {
  name: string
  text: string
  isSecret: boolean
}

/**
 * Asks one question after another, and repeats a question after a blank answer. Questions go to standard error, so that standard output
 * has only the result. Several lines may arrive together, for example when pasted. Throws a FatalError if the input ends.
 */
export async function ask(
  questions: Question[],
  input: NodeJS.ReadableStream = io.stdin,
  screen: NodeJS.WritableStream = io.stderr,
): Promise<Record<string, string>> {
  const remaining = [...questions]
  const answers: Record<string, string> = {}
  let isHidden = false
  const output = new Writable({
    write: (chunk, _encoding, done) => {
      if (!isHidden) screen.write(chunk)
      done()
    },
  })
  const terminal = createInterface({ input, output, terminal: true, historySize: 0 })
  terminal.on('SIGINT', () => process.exit(130))
  return new Promise((resolve, reject) => {
    const askNext = () => {
      const [question] = remaining
      if (question === undefined) {
        resolve(answers)
        terminal.close()
        return
      }
      isHidden = false
      terminal.setPrompt(`${question.text}: `)
      terminal.prompt()
      isHidden = question.isSecret
    }
    terminal.on('line', (line) => {
      const [question] = remaining
      if (question?.isSecret) screen.write('\n')
      if (question !== undefined && line.trim() !== '') {
        answers[question.name] = line.trim()
        remaining.shift()
      }
      askNext()
    })
    terminal.once('close', () =>
      reject(new FatalError('the input ended before all questions were answered.')),
    )
    askNext()
  })
}

const FROM_STANDARD_INPUT = '-'

/**
 * Replaces each `-` among the given options by one line of standard input, in the order of the command line. Arguments are visible to
 * every user of the machine in the list of processes. Throws a FatalError if a line is missing or empty.
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
  if (io.stdin.isTTY) {
    const answers = await ask(flags.map((flag) => ({ name: flag, text: flag, isSecret: true })))
    return flags.map((flag) => answers[flag] as string)
  }
  const lines: string[] = []
  for await (const line of createInterface({ input: io.stdin })) {
    if (lines.push(line) === flags.length) break
  }
  const missing = flags.find((_, i) => !lines[i])
  if (missing === undefined) return lines
  throw new FatalError(
    `standard input has no line for ${missing}. Write one line for each secret, in the order of the options.`,
  )
}
