import { type Command, Option } from 'commander'
import { commandActor } from '../operator/actor.ts'
import { listClients, listKeys } from '../operator/clients.ts'
import {
  addClient,
  addKey,
  previewClientRemoval,
  removeClient,
  revokeClient,
  revokeKey,
} from '../operator/manage-clients.ts'
import { endClientRotation, rotateClient, updateClient, updateKey } from '../operator/renew-credentials.ts'
import { onDatabase, parseId, withJson } from './input.ts'
import { printOne } from './io.ts'
import { addChangeCommand, addListCommand, addRemoveCommand } from './shared-commands.ts'

const EXPIRES_AT = [
  '--expires-at <time>',
  'ISO 8601 with an offset or Z, or a date (00:00 UTC), from which requests are refused; or `never`, the default',
] as const

const timeOrNever = (text: string | undefined) => (text === undefined || text === 'never' ? null : text)

export function clientsCommand(program: Command): void {
  const group = program
    .command('clients')
    .description('manage the API clients that may call protected routes')

  withJson(group.command('add'))
    .description('add a client and print its secret, which is not shown again')
    .option('--name <name>', 'display name')
    .option(...EXPIRES_AT)
    .action(async ({ name, json, expiresAt }: { name?: string; json?: boolean; expiresAt?: string }) => {
      const added = await onDatabase((database) =>
        addClient(database, commandActor(), name ?? null, null, timeOrNever(expiresAt)),
      )
      const { id, clientId, clientSecret } = added
      printOne({ id, clientId, clientSecret }, json === true)
    })

  addListCommand(group, 'list all clients without their secrets', listClients)
  addExpiryCommand(group, 'client', updateClient)
  addRotateCommand(group)

  addChangeCommand(
    group,
    'client',
    ['revoke', 'revoked'],
    'revoke a client; its next request is refused',
    (database, id) => revokeClient(database, commandActor(), id),
  )

  addRemoveCommand(group, {
    noun: 'client',
    description: 'remove a client and its keys; its next request is refused',
    preview: (database, id) => previewClientRemoval(database, commandActor(), id),
    remove: (database, id) => removeClient(database, commandActor(), id),
  })
}

/** Adds the command that changes the time of expiry. */
function addExpiryCommand(group: Command, noun: string, update: typeof updateClient): void {
  const [option, text] = EXPIRES_AT
  withJson(group.command('update'))
    .description(`change when a ${noun} expires; takes effect on the next request`)
    .argument('<id>', `id of the ${noun}, as \`${noun}s list\` shows it`, parseId)
    .requiredOption(option, text.replace(', the default', ''))
    .action(async (id: bigint, { expiresAt, json }: { expiresAt: string; json?: boolean }) => {
      await onDatabase((database) => update(database, commandActor(), id, timeOrNever(expiresAt)))
      printOne({ id, status: 'updated' }, json === true)
    })
}

interface RotateOptions {
  finish?: boolean
  discard?: boolean
  json?: boolean
}

function addRotateCommand(group: Command): void {
  withJson(group.command('rotate'))
    .description('print a new secret, which is not shown again; the previous one stays valid until --finish')
    .argument('<id>', 'id of the client, as `clients list` shows it', parseId)
    .addOption(new Option('--finish', 'refuse the previous secret').conflicts('discard'))
    .option('--discard', 'go back: refuse the new secret, and accept the previous one alone')
    .action(async (id: bigint, { finish, discard, json }: RotateOptions) => {
      if (finish || discard) {
        const kept = finish ? 'new' : 'previous'
        await onDatabase((database) => endClientRotation(database, commandActor(), id, kept))
        printOne({ id, status: finish ? 'finished' : 'discarded' }, json === true)
        return
      }
      const clientSecret = await onDatabase((database) => rotateClient(database, commandActor(), id))
      printOne({ id, clientSecret }, json === true)
    })
}

interface AddOptions {
  client: bigint
  account: bigint
  expiresAt?: string
  json?: boolean
}

export function keysCommand(program: Command): void {
  const group = program
    .command('keys')
    .description('manage API keys; each gives a client access to one official account')

  withJson(group.command('add'))
    .description('add a key and print it, which is not shown again')
    .requiredOption('--client <id>', 'id of the client, as `clients list` shows it', parseId)
    .requiredOption('--account <id>', 'id of the account, as `accounts list` shows it', parseId)
    .option(...EXPIRES_AT)
    .action(async ({ client, account, expiresAt, json }: AddOptions) => {
      const added = await onDatabase((database) =>
        addKey(database, commandActor(), client, account, timeOrNever(expiresAt)),
      )
      printOne({ id: added.id, key: added.key }, json === true)
    })

  addListCommand(group, 'list all keys with their ids and status, but not the keys themselves', listKeys)
  addExpiryCommand(group, 'key', updateKey)

  addChangeCommand(
    group,
    'key',
    ['revoke', 'revoked'],
    'revoke a key; the next request with it is refused',
    (database, id) => revokeKey(database, commandActor(), id),
  )
}
