/** Asks for values on a terminal. Answers that are secrets are not shown. */
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import { FatalError } from '../errors.ts'
import { io } from './io.ts'

export interface Question {
  /** the field of the answers */
  name: string
  text: string
  isSecret: boolean
}

/**
 * Asks in turn, again after a blank answer. Questions go to standard error, so that standard output has only the result. Several
 * lines may arrive together, for example when they are pasted. Throws a FatalError if the input ends.
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
