/** `oa-audience keys` */
import type { Command } from 'commander'
import { addKey, revokeKey } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import { listKeys } from '../operator/clients.ts'
import { onDatabase, parseId, unknownAccount, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'

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
      const added = await onDatabase((database) => addKey(database, client, account))
      if (added === null) throw unknownAccount(account)
      printOne({ id: added.id, key: added.key }, json === true)
    })

  withJson(group.command('list'))
    .description('list all keys with their ids and status, but not the keys themselves')
    .action(async ({ json }: { json?: boolean }) => {
      printMany(await onDatabase(listKeys), json === true)
    })

  withJson(group.command('revoke'))
    .description('revoke a key; the next request with it is refused')
    .argument('<id>', 'id of the key, as `keys list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const isRevoked = await onDatabase((database) => revokeKey(database, id))
      if (!isRevoked)
        throw new FatalError(`key ${id} does not exist. Run "oa-audience keys list" to see all keys.`)
      printOne({ id, status: 'revoked' }, json === true)
    })
}
