/** `oa-audience operators`: the people who may sign in to the console. */
import { type Command, Option } from 'commander'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { localUrl } from '../http/listen.ts'
import { commandActor, ROLES, type Role } from '../operator/actor.ts'
import {
  addOperator,
  type Invited,
  inviteOperator,
  listOperators,
  type OperatorChanges,
  updateOperator,
} from '../operator/people/operators.ts'
import { onDatabase, parseId, withJson } from './input.ts'
import { io, print, printOne } from './io.ts'
import { addChangeCommand, addListCommand } from './shared-commands.ts'

interface Fields {
  role?: Role
  name?: string
  organization?: bigint[]
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

  withJson(group.command('add'))
    .description('add an operator and print an invitation link, which works once within 24 hours')
    .requiredOption('--email <email>', 'address with which the operator signs in')
    .addOption(role().makeOptionMandatory())
    .option('--name <name>', 'display name')
    .option(...organization)
    .action(async ({ email, json, ...fields }: Fields & { email: string; role: Role }) => {
      const { role, name = null, organization: organizationIds = null } = fields
      const invited = await onDatabase((database) =>
        addOperator(database, commandActor(), email, { role, name, organizationIds }),
      )
      printInvitation(invited, json === true)
    })

  addListCommand(group, 'list all operators', (database) => listAll(database))

  withJson(group.command('update'))
    .description('change an operator; it takes effect with the next request')
    .argument('<id>', 'id of the operator, as `operators list` shows it', parseId)
    .addOption(role())
    .option('--name <name>', 'display name')
    .option(...organization)
    .option('--all-organizations', 'all organizations')
    .action(async (id: bigint, options: Fields & { allOrganizations?: boolean }) => {
      const changes = changesOf(options)
      await onDatabase((database) => updateOperator(database, commandActor(), id, changes))
      printOne({ id, changed: Object.keys(changes).join(', ') }, options.json === true)
    })

  const setStatus =
    (status: 'active' | 'disabled') => (database: Parameters<typeof updateOperator>[0], id: bigint) =>
      updateOperator(database, commandActor(), id, { status })
  addChangeCommand(
    group,
    'operator',
    ['disable', 'disabled'],
    'disable an operator; the next request of all sessions is refused',
    setStatus('disabled'),
  )
  addChangeCommand(
    group,
    'operator',
    ['enable', 'active'],
    'enable a disabled operator, who signs in again with the same password',
    setStatus('active'),
  )

  withJson(group.command('invite'))
    .description('print a new invitation link, for a forgotten password; the previous link no longer works')
    .argument('<id>', 'id of the operator, as `operators list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const invited = await onDatabase((database) => inviteOperator(database, commandActor(), id))
      printInvitation(invited, json === true)
    })
}

function collectIds(text: string, before: bigint[] | undefined): bigint[] {
  return [...(before ?? []), parseId(text)]
}

function changesOf({ role, name, organization, allOrganizations }: Fields & { allOrganizations?: boolean }) {
  if (organization !== undefined && allOrganizations)
    throw new FatalError('--organization and --all-organizations exclude each other. Give one of them.')
  const changes: OperatorChanges = {
    ...(role === undefined ? {} : { role }),
    ...(name === undefined ? {} : { name: name.trim() || null }),
    ...(organization === undefined ? {} : { organizationIds: organization }),
    ...(allOrganizations ? { organizationIds: null } : {}),
  }
  if (Object.keys(changes).length === 0)
    throw new FatalError('no field to change is given. See --help for the options.')
  return changes
}

async function listAll(database: Parameters<typeof listOperators>[0]) {
  const operators = await listOperators(database, null)
  return operators.map(({ organizationIds, ...operator }) => ({
    ...operator,
    organizations: organizationIds?.join(', ') ?? 'all',
  }))
}

/** Behind a proxy, the console has another address than the one it listens on: CONSOLE_URL. */
function printInvitation({ id, invitation }: Invited, asJson: boolean): void {
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
