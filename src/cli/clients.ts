import { randomBytes } from 'node:crypto'
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { insertOne, onDatabase, parseId, withJson } from './input.ts'
import { printMany, printOne } from './output.ts'

/** 192 random bits in characters that need no quoting anywhere. */
export function randomCredential(prefix: string): string {
  return `${prefix}_${randomBytes(24).toString('base64url')}`
}

export function clientsCommand(program: Command): void {
  const group = program.command('clients').description('API clients: who may call the protected routes')

  withJson(group.command('add'))
    .description('add a client; its secret is shown this once')
    .option('--name <name>', 'for people to recognise it')
    .action(async ({ name, json }: { name?: string; json?: boolean }) => {
      const clientId = randomCredential('client')
      const clientSecret = randomCredential('secret')
      const added = await onDatabase((database) =>
        insertOne<{ id: bigint }>(
          database,
          'api_client',
          '(client_id, client_secret, name) values ($1, $2, $3) returning id',
          [clientId, clientSecret, name ?? null],
        ),
      )
      if (added) printOne({ id: added.id, clientId, clientSecret }, json === true)
    })

  withJson(group.command('list'))
    .description('list all clients, without their secrets')
    .action(async ({ json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<{ id: bigint; clientId: string; name: string | null; status: string }>(
          'select id, client_id as "clientId", name, status from api_client order by id',
        ),
      )
      printMany(rows, json === true)
    })

  withJson(group.command('revoke'))
    .description('refuse a client from its next request on')
    .argument('<id>', 'the id that `clients list` shows', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const rows = await onDatabase((database) =>
        database.query<{ id: bigint; status: string }>(
          `update api_client set status = 'revoked' where id = $1 returning id, status`,
          [id],
        ),
      )
      const [revoked] = rows
      if (!revoked) throw new FatalError(`there is no client ${id}`)
      printOne(revoked, json === true)
    })
}
