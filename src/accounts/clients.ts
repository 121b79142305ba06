/** API clients and their keys for operators, without secrets. */
import { requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { type Changes, recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { findAccountDetails } from './accounts.ts'
import { type AddedKey, addKey } from './provisioning.ts'

type Use = {
  /** up to an hour before the last use; null: never used since the service records it */
  lastUsedAt: string | null
}

const EARLIEST = '1970-01-01T00:00:00Z'
const LATEST = '9999-12-31T23:59:59.999Z'

/** SQL of a time that other programs write. `infinity` is null. Times that JavaScript cannot read become the earliest or the latest one. */
export const jsonTime = (column: string) => `case when ${column} < 'infinity'
           then iso(greatest(least(${column}, '${LATEST}'), '${EARLIEST}')) end`

const lastUsedAt = (table: string) => `${jsonTime(`${table}.last_used_at`)} as "lastUsedAt"`

const IS_ROTATING = `c.previous_client_secret is not null`

export type ClientDetails = Use & {
  id: bigint
  clientId: string
  name: string | null
  status: string
  isRotating: boolean
  createdAt: string
  /** keys that work while the client works */
  activeKeys: number
}

/**
 * A client belongs to the organizations of its keys. One without keys is seen only by operators of all organizations.
 *
 * $1 client id bigint, null: all; $2 after this id bigint; $3 maximum number of rows int; $4 organization ids bigint[], null: all
 */
const selectClientDetails = statement('select-client-details')`
    select c.id, c.client_id as "clientId", c.name, c.status, ${lastUsedAt('c')}, ${IS_ROTATING} as "isRotating",
           iso(c.created_at) as "createdAt",
           (select count(*) from api_key k where k.api_client_id = c.id and k.status = 'active'
               and visible(k.organization_id, $4))::int as "activeKeys"
      from api_client c
     where ($1::bigint is null or c.id = $1) and c.id > $2
       and ($4::bigint[] is null
            or exists (select from api_key k where k.api_client_id = c.id and visible(k.organization_id, $4)))
     order by c.id
     limit $3`

export function listClientDetails(
  database: Queryable,
  organizationIds: OrganizationIds,
  { afterId, limit }: { afterId: bigint; limit: number },
): Promise<ClientDetails[]> {
  return database.query(selectClientDetails, [null, afterId, limit, organizationIds])
}

/** Throws NotVisible. */
export async function findClient(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<ClientDetails> {
  const values = [id, INT64_MIN, 1, organizationIds]
  const [client] = await database.query<ClientDetails>(selectClientDetails, values)
  return requireVisible(client, 'client', id)
}

type KeyDetails = Use & {
  id: bigint
  clientRowId: bigint
  clientId: string
  clientName: string | null
  accountId: AccountId
  accountName: string | null
  organizationId: OrganizationId
  /** the key and its client are active */
  works: boolean
  status: string
  createdAt: string
}

/**
 * $1 client id bigint, null: all; $2 account id bigint, null: all; $3 after this id bigint; $4 maximum number of rows int;
 * $5 organization ids bigint[], null: all
 */
const selectKeyDetails = statement('select-key-details')`
    select k.id, c.id as "clientRowId", c.client_id as "clientId", c.name as "clientName", k.channel_oa_id as "accountId",
           a.name as "accountName", k.organization_id as "organizationId", k.status,
           k.status = 'active' and c.status = 'active' as works, ${lastUsedAt('k')},
           iso(k.created_at) as "createdAt"
      from api_key k
      join api_client c on c.id = k.api_client_id
      left join official_account a on a.id = k.channel_oa_id and a.organization_id = k.organization_id
     where ($1::bigint is null or k.api_client_id = $1) and ($2::bigint is null or k.channel_oa_id = $2) and k.id > $3
       and visible(k.organization_id, $5)
     order by k.id
     limit $4`

export function listKeyDetails(
  database: Queryable,
  organizationIds: OrganizationIds,
  { client = null, account = null }: { client?: bigint | null; account?: AccountId | null },
  { afterId, limit }: { afterId: bigint; limit: number },
): Promise<KeyDetails[]> {
  return database.query(selectKeyDetails, [client, account, afterId, limit, organizationIds])
}

/** All keys, by the names of their references. */
export async function listKeys(
  database: Queryable,
  organizationIds: OrganizationIds,
  page: { afterId: bigint; limit: number },
) {
  const keys = await listKeyDetails(database, organizationIds, {}, page)
  return keys.map(({ id, clientRowId, accountId, organizationId, status, lastUsedAt }) => {
    return { id, client: clientRowId, account: accountId, organization: organizationId, status, lastUsedAt }
  })
}

type AddedOf = { id: bigint; organizationId: OrganizationId; accountId: AccountId }

export async function addKeyOf(
  transaction: Queryable,
  actor: Actor,
  client: bigint,
  accountId: AccountId,
): Promise<{ result: AddedKey; target: AddedOf; changes: Changes }> {
  const { organizationId } = await findAccountDetails(transaction, actor.organizationIds, accountId)
  const result = requireVisible(await addKey(transaction, client, accountId), 'account', accountId)
  return { result, target: { id: result.id, organizationId, accountId }, changes: { client } }
}

/** Of a client that is added in the same transaction. */
export async function addFirstKey(
  transaction: Queryable,
  actor: Actor,
  client: bigint,
  accountId: AccountId,
): Promise<AddedKey> {
  const { result, target, changes } = await addKeyOf(transaction, actor, client, accountId)
  const object = { kind: 'key', id: result.id } as const
  await recordActivity(transaction, actor, { ...target, action: 'key.added', object, changes })
  return result
}

// Until 0.5.0 drops expires_at: clients and keys to which 0.3.0 or another program has given an end, at which nothing ends them.

const selectEnding = statement('select-clients-and-keys-with-end')`
    select 'client' as kind, id, ${jsonTime('expires_at')} as "expiresAt"
      from api_client where status = 'active' and expires_at < 'infinity'
     union all
    select 'key', id, ${jsonTime('expires_at')} from api_key where status = 'active' and expires_at < 'infinity'
     order by kind, id`

export const listEnding = (database: Queryable) =>
  database.query<{ kind: 'client' | 'key'; id: bigint; expiresAt: string }>(selectEnding)

export async function warnOfEnding(database: Queryable, warn: (message: string) => void): Promise<void> {
  const ending = (await listEnding(database)).map(({ kind, id }) => `${kind} ${id}`)
  if (ending.length === 0) return
  warn(
    `expires_at no longer ends a client or a key. Revoke these at their times, which "oa-audience doctor" shows: ${ending.join(', ')}`,
  )
}
