import type { Command } from 'commander'
import { commandActor } from '../operator/actor.ts'
import { listClients, listKeys } from '../operator/clients.ts'
import {
  type AddedAccess,
  addClient,
  addKey,
  previewClientRemoval,
  removeClient,
  revokeClient,
  revokeKey,
} from '../operator/manage-clients.ts'
import { notFound, onDatabase, parseId, withJson } from './input.ts'
import { printOne } from './io.ts'
import { addChangeCommand, addListCommand, addRemoveCommand } from './shared-commands.ts'

export function clientsCommand(program: Command): void {
  const group = program
    .command('clients')
    .description('manage the API clients that may call protected routes')

  withJson(group.command('add'))
    .description('add a client and print its secret, which is not shown again')
    .option('--name <name>', 'display name')
    .action(async ({ name, json }: { name?: string; json?: boolean }) => {
      const added = await onDatabase((database) => addClient(database, commandActor(), name ?? null, null))
      const { id, clientId, clientSecret } = added as AddedAccess
      printOne({ id, clientId, clientSecret }, json === true)
    })

  addListCommand(group, 'list all clients without their secrets', listClients)

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

interface AddOptions {
  client: bigint
  account: bigint
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
    .action(async ({ client, account, json }: AddOptions) => {
      const added = await onDatabase((database) => addKey(database, commandActor(), client, account))
      if (typeof added === 'string') throw notFound(added, added === 'client' ? client : account)
      printOne({ id: added.id, key: added.key }, json === true)
    })

  addListCommand(group, 'list all keys with their ids and status, but not the keys themselves', listKeys)

  addChangeCommand(
    group,
    'key',
    ['revoke', 'revoked'],
    'revoke a key; the next request with it is refused',
    (database, id) => revokeKey(database, commandActor(), id),
  )
}
