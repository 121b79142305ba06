/** Adds and revokes API clients and keys. Operators see the clients that have a key in one of their organizations. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import {
  type AddedClient,
  type AddedKey,
  addClient as insertClient,
  addKey as insertKey,
  revokeClient as revokeClientById,
  revokeKey as revokeKeyById,
} from '../accounts/provisioning.ts'
import { requireVisible } from '../errors.ts'
import { refuseInput } from '../http/validate.ts'
import { transactionWithFreeIds } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import { findAccountDetails } from './accounts/accounts.ts'
import { recordActivity } from './activity.ts'
import type { Actor } from './actor.ts'
import { findClient } from './clients.ts'
import { readFutureExpiry } from './read-time.ts'
import { type ClientContents, removeClient as deleteClient, findClientContents } from './remove.ts'

export interface AddedAccess extends AddedClient {
  /** null: the client was added without a key */
  key: AddedKey | null
}

/**
 * Adds a client, and its first key if an account is given. Throws NotVisible for the account, and `invalid_input` if
 * an actor of some organizations gives no account, because they would not see the client, or if the time is invalid or in the past.
 * @param expiresAt a time or a date; null: never
 */
export function addClient(
  database: Transactions,
  actor: Actor,
  name: string | null,
  accountId: AccountId | null,
  expiresAt: string | null = null,
): Promise<AddedAccess> {
  const expiry = readFutureExpiry(expiresAt)
  if (accountId === null && actor.organizationIds !== null)
    refuseInput('account', 'is missing: choose the account of the first key')
  return transactionWithFreeIds(database, async (transaction) => {
    const client = await insertClient(transaction, name, expiry)
    await recordActivity(transaction, actor, {
      action: 'client.added',
      object: { kind: 'client', id: client.id },
      organizationId: null,
      changes: expiryOf(expiry),
    })
    const key = accountId === null ? null : await addKeyIn(transaction, actor, client.id, accountId, null)
    return { ...client, key }
  })
}

const expiryOf = (expiresAt: string | null) => (expiresAt === null ? {} : { expiresAt: [null, expiresAt] })

/**
 * Throws NotVisible for the client or the account, and `invalid_input` if the time is invalid or in the past.
 * @param expiresAt a time or a date; null: never
 */
export function addKey(
  database: Transactions,
  actor: Actor,
  clientRowId: bigint,
  accountId: AccountId,
  expiresAt: string | null = null,
): Promise<AddedKey> {
  const expiry = readFutureExpiry(expiresAt)
  return transactionWithFreeIds(database, async (transaction) => {
    await findClient(transaction, actor.organizationIds, clientRowId)
    return addKeyIn(transaction, actor, clientRowId, accountId, expiry)
  })
}

async function addKeyIn(
  transaction: Queryable,
  actor: Actor,
  clientRowId: bigint,
  accountId: AccountId,
  expiresAt: string | null,
): Promise<AddedKey> {
  const account = await findAccountDetails(transaction, actor.organizationIds, accountId)
  const key = await insertKey(transaction, clientRowId, accountId, expiresAt)
  const added = requireVisible(key, 'account', accountId)
  await recordActivity(transaction, actor, {
    action: 'key.added',
    object: { kind: 'key', id: added.id },
    organizationId: account.organizationId,
    accountId,
    changes: { client: clientRowId, ...expiryOf(expiresAt) },
  })
  return added
}

/** $1 client id bigint; $2 organization ids bigint[] */
const selectForeignKey = statement('select-foreign-key-of-client')`
    select id from api_key where api_client_id = $1 and organization_id <> all ($2) limit 1`

/** Throws as requireClient does. */
export function revokeClient(database: Transactions, actor: Actor, id: bigint): Promise<void> {
  return database.transaction(async (transaction) => {
    await requireClient(transaction, actor, id)
    await revokeClientById(transaction, id)
    await recordActivity(transaction, actor, {
      action: 'client.revoked',
      object: { kind: 'client', id },
      organizationId: null,
    })
  })
}

/** Throws NotVisible, and `invalid_input` if the client also has keys of organizations that the actor does not see. */
export async function requireClient(
  transaction: Queryable,
  { organizationIds }: Actor,
  id: bigint,
): Promise<void> {
  await findClient(transaction, organizationIds, id)
  if (organizationIds === null) return
  const foreign = await transaction.query(selectForeignKey, [id, organizationIds])
  if (foreign.length > 0)
    refuseInput('client', 'also has keys of other organizations: revoke its keys of yours instead')
}

/** $1 key id bigint; $2 organization ids bigint[], null: all */
const selectKey = statement('select-key-of-organizations')`
    select organization_id as "organizationId", channel_oa_id as "accountId", api_client_id as client
      from api_key where id = $1 and visible(organization_id, $2)`

type Key = { organizationId: OrganizationId; accountId: AccountId; client: bigint }

/** Throws NotVisible. */
export async function findKey(transaction: Queryable, { organizationIds }: Actor, id: bigint): Promise<Key> {
  const [key] = await transaction.query<Key>(selectKey, [id, organizationIds])
  return requireVisible(key, 'key', id)
}

/** Throws NotVisible. */
export function revokeKey(database: Transactions, actor: Actor, id: bigint): Promise<void> {
  return database.transaction(async (transaction) => {
    const { organizationId, accountId, client } = await findKey(transaction, actor, id)
    await revokeKeyById(transaction, id)
    await recordActivity(transaction, actor, {
      action: 'key.revoked',
      object: { kind: 'key', id },
      ...{ organizationId, accountId },
      changes: { client },
    })
  })
}

/** What a removal would delete. Throws as requireClient does. */
export async function previewClientRemoval(
  database: Queryable,
  actor: Actor,
  id: bigint,
): Promise<ClientContents> {
  await requireClient(database, actor, id)
  return requireVisible(await findClientContents(database, id), 'client', id)
}

/** Removes a client and its keys. Throws as requireClient does. */
export function removeClient(database: Transactions, actor: Actor, id: bigint): Promise<ClientContents> {
  return database.transaction(async (transaction) => {
    await requireClient(transaction, actor, id)
    const contents = requireVisible(await deleteClient(transaction, id), 'client', id)
    await recordActivity(transaction, actor, {
      action: 'client.removed',
      object: { kind: 'client', id },
      organizationId: null,
      changes: { name: [contents.name, null], apiKeys: contents.apiKeys },
    })
    return contents
  })
}
