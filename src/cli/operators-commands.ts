/** `oa-audience operators`: the people who may sign in to the console. */
import { type Command, Option } from 'commander'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { localUrl } from '../http/listen.ts'
import type { Outcome } from '../operations/operation.ts'
import { type Invited, OPERATORS } from '../operations/operators.ts'
import { ROLES, type Role } from '../operators/actor.ts'
import { onDatabase, parseId } from './input.ts'
import { io, print, printOne } from './io.ts'
import { addOperation, addOperations, performHere } from './operation-commands.ts'

interface Fields {
  role?: Role
  name?: string
  organization?: string[]
  json?: boolean
}

export function operatorsCommand(program: Command): void {
  const group = program.command('operators').description('manage the people who may sign in to the console')

  const role = () =>
    new Option(
      '--role <role>',
      'viewer: sees; manager: also changes; owner: also manages operators and organizations',
    ).choices(ROLES)
  const organization = [
    '--organization <id...>',
    'only these organizations (default: all)',
    collectIds,
  ] as const

  addOperation(group, OPERATORS.add)
    .description('add an operator and print an invitation link, which works once within 24 hours')
    .requiredOption('--email <email>', 'address with which the operator signs in')
    .addOption(role().makeOptionMandatory())
    .option('--name <name>', 'display name')
    .option(...organization)
    .action(async ({ email, role, name = null, organization: organizationIds = null, json }) => {
      const input = { email, role, name, organizationIds }
      printInvitation(
        await onDatabase((database) => performHere(database, OPERATORS.add, { input })),
        json === true,
      )
    })

  addOperation(group, OPERATORS.update)
    .description('change an operator; it takes effect with the next request')
    .addOption(role())
    .option('--name <name>', 'display name')
    .option(...organization)
    .option('--all-organizations', 'all organizations')
    .action(async (id: bigint, options: Fields & { allOrganizations?: boolean }) => {
      const input = changesOf(options)
      await onDatabase((database) => performHere(database, OPERATORS.update, { id, input }))
      printOne({ id, changed: Object.keys(input).join(', ') }, options.json === true)
    })

  addOperations(group, Object.values(OPERATORS))

  addOperation(group, OPERATORS.invite)
    .description('print a new invitation link, for a forgotten password; the previous link no longer works')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const invited = await onDatabase((database) => performHere(database, OPERATORS.invite, { id }))
      printInvitation(invited, json === true)
    })
}

function collectIds(text: string, before: string[] | undefined): string[] {
  return [...(before ?? []), String(parseId(text))]
}

function changesOf({ role, name, organization, allOrganizations }: Fields & { allOrganizations?: boolean }) {
  if (organization !== undefined && allOrganizations)
    throw new FatalError('--organization and --all-organizations exclude each other. Give one of them.')
  const changes = {
    ...(role === undefined ? {} : { role }),
    ...(name === undefined ? {} : { name: name.trim() || null }),
    ...(organization === undefined ? {} : { organizationIds: organization }),
    ...(allOrganizations ? { organizationIds: null } : {}),
  }
  if (Object.keys(changes).length === 0)
    throw new FatalError('no field to change is given. See --help for the options.')
  return changes
}

/** Behind a proxy, the console has another address than the one it listens on: CONSOLE_URL. */
function printInvitation({ result }: Outcome<Invited>, asJson: boolean): void {
  const { id, invitation } = result as Invited
  const { console, consoleUrl, host } = readConfig(io.env)
  const local =
    console === null || console.port === 0 ? 'https://<the console>' : localUrl(host, console.port)
  const origin = consoleUrl ?? local
  const link = `${origin}/invitation#${invitation}`
  printOne({ id, invitation: link }, asJson)
  if (asJson) return
  const hint = consoleUrl === null ? ' Set CONSOLE_URL to the address of your console behind a proxy.' : ''
  print(`\nSend the link to this person. It works once, within 24 hours.${hint}`)
}
