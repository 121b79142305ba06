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
 * Adds a client, and its first key if an account is given. Returns null if the actor sees no such account. Throws `invalid_input` if
 * an actor of some organizations gives no account, because they would not see the client, or if the time is invalid or in the past.
 * @param expiresAt a time or a date; null: never
 */
export function addClient(
  database: Transactions,
  actor: Actor,
  name: string | null,
  accountId: AccountId | null,
  expiresAt: string | null = null,
): Promise<AddedAccess | null> {
  const expiry = readFutureExpiry(expiresAt)
  if (accountId === null && actor.organizationIds !== null)
    refuseInput('account', 'is missing: choose the account of the first key')
  return transactionWithFreeIds(database, async (transaction) => {
    if (accountId !== null && !(await findAccountDetails(transaction, actor.organizationIds, accountId)))
      return null
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
 * Returns what is missing if the actor does not see the client or the account. Throws `invalid_input` if the time is invalid or in the
 * past.
 * @param expiresAt a time or a date; null: never
 */
export function addKey(
  database: Transactions,
  actor: Actor,
  clientRowId: bigint,
  accountId: AccountId,
  expiresAt: string | null = null,
): Promise<AddedKey | 'client' | 'account'> {
  const expiry = readFutureExpiry(expiresAt)
  return transactionWithFreeIds(database, async (transaction) => {
    const client = await findClient(transaction, actor.organizationIds, clientRowId)
    if (client === null) return 'client'
    return (await addKeyIn(transaction, actor, clientRowId, accountId, expiry)) ?? 'account'
  })
}

async function addKeyIn(
  transaction: Queryable,
  actor: Actor,
  clientRowId: bigint,
  accountId: AccountId,
  expiresAt: string | null,
): Promise<AddedKey | null> {
  const account = await findAccountDetails(transaction, actor.organizationIds, accountId)
  const added = account && (await insertKey(transaction, clientRowId, accountId, expiresAt))
  if (added === null) return null
  await recordActivity(transaction, actor, {
    action: 'key.added',
    object: { kind: 'key', id: added.id },
    organizationId: account?.organizationId ?? null,
    accountId,
    changes: { client: clientRowId, ...expiryOf(expiresAt) },
  })
  return added
}

/** $1 client id bigint; $2 organization ids bigint[] */
const selectForeignKey = statement('select-foreign-key-of-client')`
    select id from api_key where api_client_id = $1 and organization_id <> all ($2) limit 1`

/**
 * Returns false if the actor does not see the client. Throws as isClientOf does.
 */
export function revokeClient(database: Transactions, actor: Actor, id: bigint): Promise<boolean> {
  return database.transaction(async (transaction) => {
    if (!(await isClientOf(transaction, actor, id))) return false
    await revokeClientById(transaction, id)
    await recordActivity(transaction, actor, {
      action: 'client.revoked',
      object: { kind: 'client', id },
      organizationId: null,
    })
    return true
  })
}

/**
 * Whether the actor sees the client. Throws `invalid_input` if the client also has keys of organizations that the actor does not see.
 */
export async function isClientOf(
  transaction: Queryable,
  { organizationIds }: Actor,
  id: bigint,
): Promise<boolean> {
  if ((await findClient(transaction, organizationIds, id)) === null) return false
  if (organizationIds === null) return true
  const foreign = await transaction.query(selectForeignKey, [id, organizationIds])
  if (foreign.length > 0)
    refuseInput('client', 'also has keys of other organizations: revoke its keys of yours instead')
  return true
}

/** $1 key id bigint; $2 organization ids bigint[], null: all */
const selectKey = statement('select-key-of-organizations')`
    select organization_id as "organizationId", channel_oa_id as "accountId", api_client_id as client
      from api_key where id = $1 and visible(organization_id, $2)`

type Key = { organizationId: OrganizationId; accountId: AccountId; client: bigint }

/** Returns null if the actor does not see the key. */
export async function findKey(
  transaction: Queryable,
  { organizationIds }: Actor,
  id: bigint,
): Promise<Key | null> {
  const [key] = await transaction.query<Key>(selectKey, [id, organizationIds])
  return key ?? null
}

/** Returns false if the actor does not see the key. */
export function revokeKey(database: Transactions, actor: Actor, id: bigint): Promise<boolean> {
  return database.transaction(async (transaction) => {
    const key = await findKey(transaction, actor, id)
    if (key === null) return false
    const { organizationId, accountId, client } = key
    await revokeKeyById(transaction, id)
    await recordActivity(transaction, actor, {
      action: 'key.revoked',
      object: { kind: 'key', id },
      ...{ organizationId, accountId },
      changes: { client },
    })
    return true
  })
}

/** What a removal would delete. Null if the actor does not see the client. Throws as revokeClient does. */
export async function previewClientRemoval(
  database: Queryable,
  actor: Actor,
  id: bigint,
): Promise<ClientContents | null> {
  return (await isClientOf(database, actor, id)) ? findClientContents(database, id) : null
}

/** Removes a client and its keys. Returns null if the actor does not see the client. Throws as revokeClient does. */
export function removeClient(
  database: Transactions,
  actor: Actor,
  id: bigint,
): Promise<ClientContents | null> {
  return database.transaction(async (transaction) => {
    if (!(await isClientOf(transaction, actor, id))) return null
    const contents = await deleteClient(transaction, id)
    await recordActivity(transaction, actor, {
      action: 'client.removed',
      object: { kind: 'client', id },
      organizationId: null,
      changes: { name: [contents?.name ?? null, null], apiKeys: contents?.apiKeys },
    })
    return contents
  })
}
