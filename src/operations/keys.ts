/** API keys, each of which gives a client access to one official account. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { addKeyOf, findClient, jsonTime, listKeys } from '../accounts/clients.ts'
import { revokeKey } from '../accounts/provisioning.ts'
import { requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { readFutureExpiry } from '../http/read-time.ts'
import { StorableText } from '../http/validate.ts'
import { type Changes, changesBetween } from '../operators/activity.ts'
import { statement } from '../postgres/statement.ts'
import { Default, Id, orNull } from './fields.ts'
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

export const ExpiresAt = orNull(
  StorableText({
    minLength: 1,
    maxLength: 256,
    description:
      'ISO 8601 with an offset or Z, or a date (00:00 UTC), from which requests are refused; or `never`',
  }),
  'never',
)

export type Expiries = { before: string | null; after: string | null }
export const expiryChange = ([row]: Expiries[]): Changes =>
  changesBetween({ expiresAt: row?.before }, { expiresAt: row?.after })

const setExpiry = statement('set-expiry-of-key')`
    with before as (select id, expires_at from api_key where id = $1 for no key update)
    update api_key k set expires_at = $2 from before where k.id = before.id
    returning ${jsonTime('before.expires_at')} as before, ${jsonTime('k.expires_at')} as after`

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
      expiresAt: Default(ExpiresAt, null),
    },
    run: async ({ database, actor, input: { client, account, expiresAt } }) => {
      await findClient(database, actor.organizationIds, client)
      return addKeyOf(database, actor, client, account, expiresAt)
    },
  }),

  update: change({
    name: 'key.update',
    does: 'change when a key expires',
    help: 'change when a key expires; takes effect on the next request',
    records: 'key.updated',
    input: { expiresAt: ExpiresAt },
    run: async ({ database, target: { id, client }, input }) => {
      const values = [id, readFutureExpiry(input.expiresAt)]
      return { changes: { client, ...expiryChange(await database.query<Expiries>(setExpiry, values)) } }
    },
  }),

  revoke: change({
    name: 'key.revoke',
    does: 'revoke a key',
    help: 'revoke a key; the next request with it is refused',
    records: 'key.revoked',
    run: async ({ database, target: { id, client } }) => {
      await revokeKey(database, id)
      return { changes: { client } }
    },
  }),
}
