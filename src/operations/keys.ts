/** API keys, each of which gives a client access to one official account. */
import { addKeyOf, findClient, listKeys } from '../accounts/clients.ts'
import { revokeKey } from '../accounts/provisioning.ts'
import { requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { statement } from '../postgres/statement.ts'
import { Id } from './fields.ts'
import { type Noun, operationsOf } from './operation.ts'

type Key = { id: bigint; organizationId: OrganizationId; accountId: AccountId; client: bigint }

const selectKey = statement('select-key-of-organizations')`
    select id, organization_id as "organizationId", channel_oa_id as "accountId", api_client_id as client
      from api_key where id = $1 and visible(organization_id, $2)`

const KEY: Noun<Key> = {
  kind: 'key',
  word: 'key',
  plural: 'keys',
  find: async (database, { organizationIds }, id) => {
    const [key] = await database.query<Key>(selectKey, [id, organizationIds])
    return requireVisible(key, 'key', id)
  },
}
const { list, add, change } = operationsOf(KEY)

export const KEYS = {
  list: list({
    name: 'key.list',
    does: 'list all keys',
    help: 'list all keys with their ids and status, but not the keys themselves',
    run: ({ database, actor }, { after, limit }) =>
      listKeys(database, actor.organizationIds, { afterId: after ?? INT64_MIN, limit }),
  }),

  add: add({
    name: 'key.add',
    does: 'add a key',
    help: 'add a key and print it, which is not shown again',
    records: 'key.added',
    input: {
      client: Id('id of the client, as `clients list` shows it'),
      account: Id('id of the account, as `accounts list` shows it'),
    },
    run: async ({ database, actor, input: { client, account } }) => {
      await findClient(database, actor.organizationIds, client)
      return addKeyOf(database, actor, client, account)
    },
  }),

  revoke: change({
    name: 'key.revoke',
    does: 'revoke a key',
    help: 'revoke a key; the next request with it is refused',
    records: 'key.revoked',
    run: async ({ database, target: { id, client } }) => {
      return { changes: (await revokeKey(database, id)) ? { client } : null }
    },
  }),
}
