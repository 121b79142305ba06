#!/usr/bin/env node
/** The command line `oa-audience`. */
import { Command, CommanderError } from 'commander'
import { demoCommand } from '../../tools/demo/command.ts'
import { proveCommand } from '../../tools/prove/command.ts'
import { simulateCommand } from '../../tools/simulate.ts'
import { describeVariables, readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import { serviceName, serviceVersion } from '../package.ts'
import { sqlStateOf, violatedConstraint } from '../postgres/faults.ts'
import { withDatabase } from '../postgres/open.ts'
import { accountsCommand } from './accounts.ts'
import { audienceCommand } from './audience.ts'
import { clientsCommand } from './clients.ts'
import { doctorCommand } from './doctor.ts'
import { eventsCommand } from './events.ts'
import { withJson } from './input.ts'
import { keysCommand } from './keys.ts'
import { membersCommand } from './members.ts'
import { organizationsCommand } from './organizations.ts'
import { printMany } from './output.ts'

const program = new Command(serviceName)
  .description('keep the audience of LINE official accounts and let B2B clients list, change and erase it')
  .version(serviceVersion)
  .exitOverride()
  .addHelpText('after', `\nEnvironment variables (name, default, meaning):\n${describeVariables()}`)

withJson(program.command('serve'))
  .description('run the service; its log is JSON with or without --json')
  // Imported here, because the service's modules take 0.2 s to load, and other commands do not need them.
  .action(async () => (await import('../main.ts')).serve(readConfig()))

withJson(program.command('migrate'))
  .description('bring the database schema up to date, as serve does when it starts')
  .action(async ({ json }: { json?: boolean }) => {
    const applied = await withDatabase(readConfig().database, async (_, names) => names)
    if (json)
      printMany(
        applied.map((name) => ({ name })),
        true,
      )
    else if (applied.length > 0) console.log(applied.map((name) => `applied ${name}`).join('\n'))
    else console.log('nothing to do')
  })

demoCommand(program)
organizationsCommand(program)
accountsCommand(program)
audienceCommand(program)
membersCommand(program)
clientsCommand(program)
keysCommand(program)
eventsCommand(program)
doctorCommand(program)
simulateCommand(program)
proveCommand(program)

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
  }
}

/** One line per error that the user can fix. Any other error is a bug and keeps its stack. */
function explain(error: unknown): string[] {
  if (error instanceof FatalError) return error.message.split('\n')
  const constraint = violatedConstraint(error)
  if (constraint !== null) {
    const isDuplicate = sqlStateOf(error) === '23505'
    const hint = isDuplicate ? 'another row already has this value' : 'check that every given id exists'
    return [`the database rejected the change (${constraint}): ${hint}`]
  }
  return [error instanceof Error ? (error.stack ?? error.message) : String(error)]
}
