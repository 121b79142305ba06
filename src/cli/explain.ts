/** Explains an error of a command in one line per problem. */
import type { Command } from 'commander'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError, type ErrorCode, FatalError, NotVisible, toFatalError } from '../errors.ts'
import { constraintSentence } from '../operator/constraint-sentences.ts'
import { systemReason } from '../system-reason.ts'
import { notFound } from './input.ts'

const FIXABLE: ErrorCode[] = ['invalid_input', 'replay_running', 'too_many_jobs', 'database_restored']

/** Options whose fields have other names. */
const OPTION_OF_FIELD: Record<string, string> = {
  organizationIds: 'organization',
  quietHours: 'quiet',
  tags: 'tag',
}

/** One line per error that the user can fix. Any other error is a bug and keeps its stack. */
export function explain(error: unknown, command: Command): string[] {
  if (error instanceof FatalError) return error.message.split('\n')
  if (error instanceof NotVisible) return [notFound(error.noun, error.id).message]
  if (error instanceof AppError && FIXABLE.includes(error.code))
    return toFatalError(error, (field) => optionOf(command, field)).message.split('\n')
  if (error instanceof UnreadableSecret)
    return [`${error.message}. Run "oa-audience secrets status", and set SECRETS_KEYS as for the service.`]
  const sentence = constraintSentence(error) ?? explainSystem(error)
  if (sentence !== null) return [sentence]
  return [error instanceof Error ? (error.stack ?? error.message) : String(error)]
}

/** `--expires-at` for `expiresAt`. A field without an option keeps its name. */
function optionOf(command: Command, path: string): string {
  const [field = ''] = path.split('/')
  const name = OPTION_OF_FIELD[field] ?? field
  return command.options.find((option) => option.attributeName() === name && !option.negate)?.long ?? path
}

const ACTIONS: Record<string, string> = {
  EACCES: 'Run the command as a user who may use it, or choose another one.',
  EPERM: 'Run the command as a user who may use it, or choose another one.',
  EADDRINUSE: 'Stop the other process, or choose another port.',
  ENOSPC: 'Free space on the disk.',
}

type SystemError = Partial<NodeJS.ErrnoException & { address: string; port: number }>

/** A file or a port that the user chose. Other errors of the system, such as those of connections, are not explained. */
function explainSystem(error: unknown): string | null {
  const { code = '', syscall, path, address, port } = error as SystemError
  const subject = syscall === 'listen' ? `port ${port} on ${address}` : path
  if (syscall === undefined || subject === undefined) return null
  return `${subject} cannot be used: ${systemReason(error)}. ${ACTIONS[code] ?? 'Correct the path, or choose another one.'}`
}
