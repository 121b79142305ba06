/** API clients and their keys for operators, without secrets. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { OrganizationIds } from './actor.ts'

export type ClientSummary = { id: bigint; clientId: string; name: string | null; status: string }

const selectClients = statement('select-clients')`
    select id, client_id as "clientId", name, status from api_client order by id`

export function listClients(database: Queryable): Promise<ClientSummary[]> {
  return database.query(selectClients)
}

export type KeySummary = {
  id: bigint
  client: bigint
  account: AccountId
  organization: OrganizationId
  status: string
}

const selectKeys = statement('select-keys')`
    select id, api_client_id as client, channel_oa_id as account, organization_id as organization, status
      from api_key
     order by id`

export function listKeys(database: Queryable): Promise<KeySummary[]> {
  return database.query(selectKeys)
}

export type ClientDetails = ClientSummary & { createdAt: string; activeKeys: number }

/**
 * A client belongs to the organizations of its keys. One without keys is seen only by operators of all organizations.
 *
 * $1 client id bigint, null: all; $2 after this id bigint; $3 maximum number of rows int; $4 organization ids bigint[], null: all
 */
const selectClientDetails = statement('select-client-details')`
    select c.id, c.client_id as "clientId", c.name, c.status,
           to_char(c.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
           (select count(*) from api_key k where k.api_client_id = c.id and k.status = 'active'
               and ($4::bigint[] is null or k.organization_id = any ($4)))::int as "activeKeys"
      from api_client c
     where ($1::bigint is null or c.id = $1) and c.id > $2
       and ($4::bigint[] is null
            or exists (select from api_key k where k.api_client_id = c.id and k.organization_id = any ($4)))
     order by c.id
     limit $3`

/** Clients in the order of their ids, with their number of active keys. */
export function listClientDetails(
  database: Queryable,
  organizationIds: OrganizationIds,
  { afterId, limit }: { afterId: bigint; limit: number },
): Promise<ClientDetails[]> {
  return database.query(selectClientDetails, [null, afterId, limit, organizationIds])
}

export async function findClient(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<ClientDetails | null> {
  const values = [id, INT64_MIN, 1, organizationIds]
  const [client] = await database.query<ClientDetails>(selectClientDetails, values)
  return client ?? null
}

export type KeyDetails = {
  id: bigint
  clientRowId: bigint
  clientId: string
  clientName: string | null
  accountId: AccountId
  /** null: the account does not exist */
  accountName: string | null
  /** the key is active and so is its client */
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
           a.name as "accountName", k.status = 'active' and c.status = 'active' as works, k.status,
           to_char(k.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt"
      from api_key k
      join api_client c on c.id = k.api_client_id
      left join official_account a on a.id = k.channel_oa_id and a.organization_id = k.organization_id
     where ($1::bigint is null or k.api_client_id = $1) and ($2::bigint is null or k.channel_oa_id = $2) and k.id > $3
       and ($5::bigint[] is null or k.organization_id = any ($5))
     order by k.id
     limit $4`

/** The keys of a client or of an account, in the order of their ids, without the keys themselves. */
export function listKeyDetails(
  database: Queryable,
  organizationIds: OrganizationIds,
  { client = null, account = null }: { client?: bigint | null; account?: AccountId | null },
  { afterId, limit }: { afterId: bigint; limit: number },
): Promise<KeyDetails[]> {
  return database.query(selectKeyDetails, [client, account, afterId, limit, organizationIds])
}
