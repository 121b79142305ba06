#!/usr/bin/env node
/** The command line `oa-audience`. */
import cluster from 'node:cluster'
import { Command, CommanderError } from 'commander'
import { describeVariables, readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import { serviceName, serviceVersion } from '../package.ts'
import { migrateDatabase, requireDatabase } from '../postgres/open.ts'
import { constraintSentence } from './constraint-sentences.ts'
import { withJson } from './input.ts'
import { printMany } from './output.ts'

/** The command groups, in the order of --help. */
const GROUPS: Record<string, () => Promise<(program: Command) => void>> = {
  demo: async () => (await import('../../tools/demo/command.ts')).demoCommand,
  setup: async () => (await import('./setup.ts')).setupCommand,
  organizations: async () => (await import('./organizations.ts')).organizationsCommand,
  accounts: async () => (await import('./accounts.ts')).accountsCommand,
  audience: async () => (await import('./audience.ts')).audienceCommand,
  members: async () => (await import('./members.ts')).membersCommand,
  clients: async () => (await import('./clients.ts')).clientsCommand,
  keys: async () => (await import('./keys.ts')).keysCommand,
  endpoints: async () => (await import('./endpoints.ts')).endpointsCommand,
  events: async () => (await import('./events.ts')).eventsCommand,
  fleet: async () => (await import('./fleet.ts')).fleetCommand,
  doctor: async () => (await import('./doctor.ts')).doctorCommand,
  simulate: async () => (await import('../../tools/simulate.ts')).simulateCommand,
  prove: async () => (await import('../../tools/prove/command.ts')).proveCommand,
}

const program = new Command(serviceName)
  .description('keep the audience of LINE official accounts and let B2B clients list, change and erase it')
  .version(serviceVersion)
  .exitOverride()
  .addHelpText('after', `\nEnvironment variables (name, default, meaning):\n${describeVariables()}`)

withJson(program.command('serve'))
  .description('run the service; its log is JSON with or without --json')
  // Imported here, because the service's modules take 0.2 s to load, and other commands do not need them.
  .action(async () => {
    const config = readConfig()
    if (config.workers > 1 && cluster.isPrimary)
      await (await import('../workers.ts')).serveWithWorkers(config)
    else await (await import('../main.ts')).serve(config)
  })

withJson(program.command('migrate'))
  .description(
    'bring the database schema up to date, as serve does when it starts; no other command changes it',
  )
  .action(async ({ json }: { json?: boolean }) => {
    const { database } = readConfig()
    requireDatabase(database)
    const applied = await migrateDatabase(database)
    if (json)
      printMany(
        applied.map((name) => ({ name })),
        true,
      )
    else if (applied.length > 0) console.log(applied.map((name) => `applied ${name}`).join('\n'))
    else console.log('nothing to do')
  })

// Only the group that is named, because all of them take 0.2 s to load. The help lists all.
const [, , named = ''] = process.argv
const needsAll = !Object.hasOwn(GROUPS, named) && named !== '--version'
for (const [name, load] of Object.entries(GROUPS)) {
  if (name === named || needsAll) (await load())(program)
}

// A reader such as head may close the pipe early, which is a success. A full disk is not.
process.stdout.on('error', (error: Error & { code?: string }) => {
  if (error.code === 'EPIPE') process.exit()
  console.error(`oa-audience: standard output cannot be written (${error.code})`)
  process.exit(1)
})
try {
  await program.parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode
  } else {
    for (const line of explain(error)) console.error(`oa-audience: ${line}`)
    process.exitCode = 1
    // The IPC channel to the first process would keep a worker running.
    if (cluster.isWorker) process.exit()
  }
}

/** One line per error that the user can fix. Any other error is a bug and keeps its stack. */
function explain(error: unknown): string[] {
  if (error instanceof FatalError) return error.message.split('\n')
  const sentence = constraintSentence(error)
  if (sentence !== null) return [sentence]
  return [error instanceof Error ? (error.stack ?? error.message) : String(error)]
}
