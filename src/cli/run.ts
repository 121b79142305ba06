import cluster from 'node:cluster'
import { type Command, CommanderError } from 'commander'
import { describeVariables, readConfig, removeSecretsKeys } from '../config/config.ts'
import { serviceName, serviceVersion } from '../config/package.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { systemReason } from '../config/system-reason.ts'
import { AppError, type ErrorCode, FatalError, NotVisible, toFatalError } from '../errors.ts'
import { constraintSentence } from '../operations/constraint-sentences.ts'
import { migrateDatabase, requireDatabase, withDatabase } from '../postgres/pool/open.ts'
import { CliCommand, notFound, withJson } from './command.ts'
import { type Io, io, print, printError, withIo } from './io.ts'

const GROUPS: Record<string, () => Promise<(program: CliCommand) => void>> = {
  demo: async () => (await import('../../tools/demo/command.ts')).demoCommand,
  setup: async () => (await import('./setup-command.ts')).setupCommand,
  organizations: async () => (await import('./organizations-commands.ts')).organizationsCommand,
  accounts: async () => (await import('./accounts-commands.ts')).accountsCommand,
  audience: async () => (await import('./audience-command.ts')).audienceCommand,
  members: async () => (await import('./members-commands.ts')).membersCommand,
  erasures: async () => (await import('./backup-commands.ts')).erasuresCommand,
  clients: async () => (await import('./organizations-commands.ts')).clientsCommand,
  keys: async () => (await import('./organizations-commands.ts')).keysCommand,
  operators: async () => (await import('./operators-commands.ts')).operatorsCommand,
  activity: async () => (await import('./operators-commands.ts')).activityCommand,
  segments: async () => (await import('./organizations-commands.ts')).segmentsCommand,
  links: async () => (await import('./links-command.ts')).linksCommand,
  endpoints: async () => (await import('./endpoints-commands.ts')).endpointsCommand,
  jobs: async () => (await import('./jobs-commands.ts')).jobsCommand,
  notifications: async () => (await import('./notifications-commands.ts')).notificationsCommand,
  events: async () => (await import('./events-commands.ts')).eventsCommand,
  fleet: async () => (await import('./accounts-commands.ts')).fleetCommand,
  report: async () => (await import('./report-command.ts')).reportCommand,
  backup: async () => (await import('./backup-commands.ts')).backupCommand,
  restore: async () => (await import('./backup-commands.ts')).restoreCommand,
  secrets: async () => (await import('./backup-commands.ts')).secretsCommand,
  mcp: async () => (await import('./mcp-command.ts')).mcpCommand,
  health: async () => (await import('./health-command.ts')).healthCommand,
  doctor: async () => doctorCommand,
  simulate: async () => (await import('../../tools/simulate.ts')).simulateCommand,
  prove: async () => (await import('../../tools/prove/command.ts')).proveCommand,
}

export async function createProgram(isNeeded: (group: string) => boolean): Promise<CliCommand> {
  const program = new CliCommand(serviceName)
    .description('keep the audience of LINE official accounts and let B2B clients list, change and erase it')
    .version(serviceVersion)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
    })
    .addHelpText('after', `\nEnvironment variables (name, default, meaning):\n${describeVariables()}`)
  serveCommand(program)
  migrateCommand(program)
  for (const [name, load] of Object.entries(GROUPS)) {
    if (isNeeded(name)) (await load())(program)
  }
  return program
}

/** The exit status is in `given.exitCode`, undefined for success. @param args without the program's own name */
export const run = (args: string[], given: Io): Promise<void> => withIo(given, () => runCommand(args))

async function runCommand(args: string[]): Promise<void> {
  // Loads only the given group, because loading all of them takes 0.2 s. The help lists all.
  const [named = ''] = args
  const needsAll = !Object.hasOwn(GROUPS, named) && named !== '--version'
  const program = await createProgram((group) => needsAll || group === named)
  let command: Command = program
  program.hook('preAction', (_, running) => {
    command = running
  })
  try {
    await program.parseAsync(args, { from: 'user' })
  } catch (error) {
    if (error instanceof CommanderError) {
      io.exitCode = error.exitCode
      return
    }
    for (const line of explain(error, command)) printError(`oa-audience: ${line}`)
    io.exitCode = 1
  }
}

function serveCommand(program: CliCommand): void {
  withJson(program.command('serve'))
    .description('run the service; its log is JSON with or without --json')
    // The service's modules take 0.2 s to load, and other commands do not need them.
    .action(async () => {
      const config = readConfig(io.env)
      const secretsKeys = removeSecretsKeys(io.env)
      if (config.workers > 1 && cluster.isPrimary)
        await (await import('./workers.ts')).serveWithWorkers(config, secretsKeys)
      else await (await import('../main.ts')).serve(config)
    })
}

function migrateCommand(program: CliCommand): void {
  program
    .command('migrate')
    .description(
      'bring the database schema up to date, as serve does when it starts; no other command changes it',
    )
    .prints(
      async () => {
        const { warnOfEnding } = await import('../accounts/clients.ts')
        const { database } = readConfig(io.env)
        requireDatabase(database)
        const applied = await migrateDatabase(database)
        await withDatabase(database, (opened) =>
          warnOfEnding(opened, (text) => printError(`oa-audience: ${text}`)),
        )
        return applied.map((name) => ({ name }))
      },
      (applied) => {
        for (const { name } of applied) print(`applied ${name}`)
        if (applied.length === 0) print('nothing to do')
      },
    )
}

function doctorCommand(program: CliCommand): void {
  program
    .command('doctor')
    .description(
      'check configuration, database, Redis, LINE, clocks, accounts, endpoints and PUBLIC_URL; exits with 1 if one has an error',
    )
    .prints(async () => {
      const { examineSystem } = await import('../watch/system-health.ts')
      const findings = await examineSystem(readConfig(io.env))
      if (findings.some(({ severity }) => severity === 'error')) io.exitCode = 1
      return findings
    })
}

// Explains an error of a command.

const FIXABLE: ErrorCode[] = [
  'invalid_input',
  'replay_running',
  'too_many_jobs',
  'database_restored',
  'platform_unavailable',
]

const OPTION_OF_FIELD: Record<string, string> = {
  organizationIds: 'organization',
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

/** `--channel-id` for `channelId`, `--condition tagsAll` for a field in it. A field without an option keeps its name. */
function optionOf(command: Command, path: string): string {
  const [field = '', ...inner] = path.split('/')
  const name = OPTION_OF_FIELD[field] ?? field
  const option = command.options.find((each) => each.attributeName() === name && !each.negate)
  if (!option?.long) return path
  return [option.long, ...inner.filter((part) => !/^\d+$/.test(part))].join(' ')
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
