#!/usr/bin/env node
/** The command line `oa-audience`. */
import { Command, CommanderError } from 'commander'
import { demoCommand } from '../../tools/demo.ts'
import { proveCommand } from '../../tools/prove/prove.ts'
import { simulateCommand } from '../../tools/simulate.ts'
import { describeVariables, readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import { serve } from '../main.ts'
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
  .description('Keeps the audience of LINE official accounts and lets B2B clients list, change and erase it.')
  .version(serviceVersion)
  .exitOverride()
  .addHelpText('after', `\nEnvironment variables (name, default, meaning):\n${describeVariables()}`)

withJson(program.command('serve'))
  .description('run the service; its log is JSON in any case')
  .action(() => serve(readConfig()))

withJson(program.command('migrate'))
  .description('bring the database schema up to date (serve does it by itself)')
  .action(async ({ json }: { json?: boolean }) => {
    const applied = await withDatabase(readConfig().database, async (_, names) => names)
    if (json)
      printMany(
        applied.map((name) => ({ name })),
        true,
      )
    else
      console.log(applied.length > 0 ? applied.map((name) => `applied ${name}`).join('\n') : 'nothing to do')
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

// Whoever reads our output, such as head, may have had enough. A disk that is full must not look like success.
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

/** One line a fault for what people can mend, the stack for what we must. */
function explain(error: unknown): string[] {
  if (error instanceof FatalError) return error.message.split('\n')
  const constraint = violatedConstraint(error)
  if (constraint !== null) {
    const isTaken = sqlStateOf(error) === '23505'
    const hint = isTaken ? 'another one has that already' : 'does everything it refers to exist?'
    return [`the database refuses this (${constraint}): ${hint}`]
  }
  return [error instanceof Error ? (error.stack ?? error.message) : String(error)]
}
