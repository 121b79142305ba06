import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { randomCredential } from './clients.ts'
import { insertOne, onDatabase, parseId, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'

interface AddOptions {
  client: bigint
  account: bigint
  json?: boolean
}

export function keysCommand(program: Command): void {
  const group = program
    .command('keys')
    .description('API keys: what a client may touch, one official account each')

  withJson(group.command('add'))
    .description('add a key to a client for one official account and its organization; it is shown this once')
    .requiredOption('--client <id>', 'the id that `clients list` shows', parseId)
    .requiredOption('--account <id>', 'the id that `accounts list` shows', parseId)
    .action(async ({ client, account, json }: AddOptions) => {
      const key = randomCredential('key')
      const added = await onDatabase((database) =>
        insertOne<{ id: bigint }>(
          database,
          'api_key',
          `(api_client_id, key, channel_oa_id, organization_id)
           select $1, $2, id, organization_id from official_account where id = $3 returning id`,
          [client, key, account],
        ),
      )
      if (!added) throw new FatalError(`there is no official account ${account}`)
      printOne({ id: added.id, key }, json === true)
    })

  withJson(group.command('list'))
    .description('list all keys, without the keys themselves')
    .action(async ({ json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<{
          id: bigint
          client: bigint
          account: bigint
          organization: bigint
          status: string
        }>(
          `select id, api_client_id as "client", channel_oa_id as "account", organization_id as "organization",
                  status
             from api_key order by id`,
        ),
      )
      printMany(rows, json === true)
    })

  withJson(group.command('revoke'))
    .description('refuse a key from its next request on')
    .argument('<id>', 'the id that `keys list` shows', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<{ id: bigint; status: string }>(
          `update api_key set status = 'revoked' where id = $1 returning id, status`,
          [id],
        ),
      )
      const [revoked] = rows
      if (!revoked) throw new FatalError(`there is no key ${id}`)
      printOne(revoked, json === true)
    })
}
