/** `oa-audience operators`: the people who may sign in to the console. */
import { readConfig } from '../config/config.ts'
import { localUrl } from '../http/listen.ts'
import type { Outcome } from '../operations/operation.ts'
import { type Invited, OPERATORS } from '../operations/operators.ts'
import type { CliCommand } from './command.ts'
import { io, print, printOne } from './io.ts'
import { addOperation, addOperations, inputOf, optionsOf, performHere } from './operation-commands.ts'

export function operatorsCommand(program: CliCommand): void {
  const group = program.command('operators').description('manage the people who may sign in to the console')
  const add = addOperation(group, OPERATORS.add)
  for (const option of optionsOf(OPERATORS.add)) add.addOption(option)
  add
    .description('add an operator and print an invitation link, which works once within 24 hours')
    .onDatabase(async (database, given: object) => {
      const input = OPERATORS.add.check(await inputOf(OPERATORS.add, { ...given }))
      return linkOf(await performHere(database, OPERATORS.add, { input }))
    }, printInvitation)

  addOperations(group, Object.values(OPERATORS))

  addOperation(group, OPERATORS.invite)
    .description('print a new invitation link, for a forgotten password; the previous link no longer works')
    .onDatabase(
      async (database, id: bigint) => linkOf(await performHere(database, OPERATORS.invite, { id })),
      printInvitation,
    )
}

/** Behind a proxy, the console has another address than the one it listens on: CONSOLE_URL. */
function linkOf({ result }: Outcome<Invited>) {
  const { id, invitation } = result as Invited
  const { console, consoleUrl, host } = readConfig(io.env)
  const local =
    console === null || console.port === 0 ? 'https://<the console>' : localUrl(host, console.port)
  const origin = consoleUrl ?? local
  return { id, invitation: `${origin}/invitation#${invitation}` }
}

function printInvitation(invited: Invited): void {
  printOne({ ...invited })
  const { consoleUrl } = readConfig(io.env)
  const hint = consoleUrl === null ? ' Set CONSOLE_URL to the address of your console behind a proxy.' : ''
  print(`\nSend the link to this person. It works once, within 24 hours.${hint}`)
}
