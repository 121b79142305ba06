/** API clients. Operators see the clients that have a key in one of their organizations. Only an addition and a rotation return a secret. */
import {
  addFirstKey,
  type ClientDetails,
  findClient,
  listClientDetails,
  listKeyDetails,
} from '../accounts/clients.ts'
import { type AddedClient, addClient, newClientSecret, revokeClient } from '../accounts/provisioning.ts'
import { refuseRequest, requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { refuseInput } from '../http/validate.ts'
import { changesBetween } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { Default, DisplayName, Id, orNull } from './fields.ts'
import { type Noun, operationsOf, type Target } from './operation.ts'

const CLIENT: Noun<Target & { client: ClientDetails }> = {
  kind: 'client',
  word: 'client',
  plural: 'clients',
  find: async (database, { organizationIds }, id) => ({
    id,
    organizationId: null,
    client: await findClient(database, organizationIds, id),
  }),
}
const { read, list, add, change } = operationsOf(CLIENT)

const selectForeignKey = statement('select-foreign-key-of-client')`
    select id from api_key where api_client_id = $1 and organization_id <> all ($2) limit 1`

/** Throws `invalid_input` if the client also has keys of organizations that the actor does not see. */
async function requireWhole(database: Queryable, { organizationIds }: Actor, { id }: Target): Promise<void> {
  if (organizationIds === null) return
  const foreign = await database.query(selectForeignKey, [id, organizationIds])
  if (foreign.length > 0)
    refuseInput('client', 'also has keys of other organizations: revoke its keys of yours instead')
}

type ClientContents = { clientId: string; name: string | null; apiKeys: number }

type AddedAccess = AddedClient & { keyId?: bigint; key?: string }

const selectContents = statement('select-client-contents')`
    select client_id as "clientId", name,
           (select count(*)::int from api_key where api_client_id = $1) as "apiKeys"
      from api_client where id = $1`

/** $1 client id bigint. Nobody adds a key to the client until the transaction ends. */
const lockClient = statement('lock-client')`select from api_client where id = $1 for update`

const deleteKeys = statement('delete-keys-of-client')`delete from api_key where api_client_id = $1`

const deleteClient = statement('delete-client')`delete from api_client where id = $1`

async function findContents(database: Queryable, actor: Actor, target: Target): Promise<ClientContents> {
  await requireWhole(database, actor, target)
  const [contents] = await database.query<ClientContents>(selectContents, [target.id])
  return requireVisible(contents, 'client', target.id)
}

/** $1 client id bigint. If two rotations are concurrent, one waits and then finds the previous secret of the other. */
const lockSecrets = statement('lock-client-secrets')`
    select status, previous_client_secret is not null as "isRotating" from api_client where id = $1 for no key update`

const replaceSecret = statement('replace-client-secret')`
    update api_client set previous_client_secret = client_secret, client_secret = $2 where id = $1`

const keepNewSecret = statement('clear-previous-client-secret')`
    update api_client set previous_client_secret = null
     where id = $1 and previous_client_secret is not null returning id`

const keepPreviousSecret = statement('restore-previous-client-secret')`
    update api_client set client_secret = previous_client_secret, previous_client_secret = null
     where id = $1 and previous_client_secret is not null returning id`

function requireRotating(ended: object[], { id }: Target): void {
  if (ended.length === 0)
    refuseRequest(`client ${id} is not rotating: it has one secret. Nothing was changed.`)
}

export const CLIENTS = {
  list: list({
    name: 'client.list',
    does: 'list clients',
    help: 'list all clients without their secrets',
    run: ({ database, actor }, { after, limit }) =>
      listClientDetails(database, actor.organizationIds, { afterId: after ?? INT64_MIN, limit }),
  }),

  show: read({
    name: 'client.show',
    does: 'see a client',
    run: async ({ target: { client } }) => ({ client }),
  }),

  keys: list({
    name: 'client.keys',
    does: 'list keys',
    run: ({ database, actor, target }, { after, limit }) => {
      const page = { afterId: after ?? INT64_MIN, limit }
      return listKeyDetails(database, actor.organizationIds, { client: target.id }, page)
    },
  }),

  /** Operators of some organizations give the account of a first key: they would not see a client without one. */
  add: add({
    name: 'client.add',
    does: 'add a client',
    help: 'add a client and print its secret, which is not shown again',
    records: 'client.added',
    input: {
      name: Default(orNull(DisplayName), null),
      account: Default(orNull(Id('also add a first key, for this account')), null),
    },
    run: async ({ database, actor, input: { name, account } }) => {
      if (account === null && actor.organizationIds !== null)
        refuseInput('account', 'is missing: choose the account of the first key')
      const displayName = name?.trim() || null
      const client = await addClient(database, displayName)
      const target = { id: client.id, organizationId: null }
      const changes = changesBetween({}, { clientId: client.clientId, name: displayName })
      if (account === null) return { result: client as AddedAccess, target, changes }
      const key = await addFirstKey(database, actor, client.id, account)
      return { result: { ...client, keyId: key.id, key: key.key }, target, changes }
    },
  }),

  rotate: change({
    name: 'client.rotate',
    does: "rotate a client's secret",
    records: 'client.rotated',
    run: async ({ database, actor, target }) => {
      await requireWhole(database, actor, target)
      const { id } = target
      type Locked = { status: string; isRotating: boolean }
      const [locked] = await database.query<Locked>(lockSecrets, [id])
      const { status, isRotating } = requireVisible(locked, 'client', id)
      if (isRotating)
        refuseRequest(
          `client ${id} already has a previous secret, which its programs may still use. Finish that rotation first ("oa-audience clients rotate ${id} --finish"), or discard its new secret (--discard).`,
        )
      if (status !== 'active')
        refuseRequest(
          `client ${id} is not active, so none of its secrets is accepted. Add another client instead.`,
        )
      const clientSecret = newClientSecret()
      await database.query(replaceSecret, [id, clientSecret])
      return { result: { clientSecret }, changes: { clientSecret: 'replaced' } }
    },
  }),

  finishRotation: change({
    name: 'client.finish-rotation',
    does: "delete a client's previous secret",
    records: 'client.rotation_finished',
    run: async ({ database, actor, target }) => {
      await requireWhole(database, actor, target)
      requireRotating(await database.query(keepNewSecret, [target.id]), target)
    },
  }),

  discardRotation: change({
    name: 'client.discard-rotation',
    does: "discard a client's new secret",
    records: 'client.rotation_discarded',
    run: async ({ database, actor, target }) => {
      await requireWhole(database, actor, target)
      requireRotating(await database.query(keepPreviousSecret, [target.id]), target)
    },
  }),

  revoke: change({
    name: 'client.revoke',
    does: 'revoke a client',
    help: 'revoke a client; its next request is refused',
    records: 'client.revoked',
    run: async ({ database, actor, target }) => {
      await requireWhole(database, actor, target)
      return { changes: (await revokeClient(database, target.id)) ? { status: 'revoked' } : null }
    },
  }),

  removal: read({
    name: 'client.removal',
    role: 'manager',
    does: 'see what a removal deletes',
    run: ({ database, actor, target }) => findContents(database, actor, target),
  }),

  remove: change({
    name: 'client.remove',
    does: 'remove a client',
    records: 'client.removed',
    run: async ({ database, actor, target }) => {
      await database.query(lockClient, [target.id])
      const result = await findContents(database, actor, target)
      await database.query(deleteKeys, [target.id])
      await database.query(deleteClient, [target.id])
      return { result, changes: { name: [result.name, null], apiKeys: result.apiKeys } }
    },
  }),
}
