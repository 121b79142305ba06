/** `oa-audience clients` */
import type { Command } from 'commander'
import { addClient, revokeClient } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import { listClients } from '../operator/clients.ts'
import { findClientContents, removeClient } from '../operator/remove.ts'
import { onDatabase, parseId, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'
import { addRemoveCommand } from './removal.ts'

export function clientsCommand(program: Command): void {
  const group = program
    .command('clients')
    .description('manage the API clients that may call protected routes')

  withJson(group.command('add'))
    .description('add a client and print its secret, which is not shown again')
    .option('--name <name>', 'display name')
    .action(async ({ name, json }: { name?: string; json?: boolean }) => {
      const { id, clientId, clientSecret } = await onDatabase((database) => addClient(database, name ?? null))
      printOne({ id, clientId, clientSecret }, json === true)
    })

  withJson(group.command('list'))
    .description('list all clients without their secrets')
    .action(async ({ json }: { json?: boolean }) => {
      printMany(await onDatabase(listClients), json === true)
    })

  withJson(group.command('revoke'))
    .description('revoke a client; its next request is refused')
    .argument('<id>', 'id of the client, as `clients list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const isRevoked = await onDatabase((database) => revokeClient(database, id))
      if (!isRevoked)
        throw new FatalError(
          `client ${id} does not exist. Run "oa-audience clients list" to see all clients.`,
        )
      printOne({ id, status: 'revoked' }, json === true)
    })

  addRemoveCommand(group, {
    noun: 'client',
    description: 'remove a client and its keys; its next request is refused',
    preview: findClientContents,
    remove: removeClient,
  })
}
