/** API clients and their keys for operators, without secrets. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

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

/** $1 client id bigint, null: all; $2 after this id bigint; $3 maximum number of rows int */
const selectClientDetails = statement('select-client-details')`
    select c.id, c.client_id as "clientId", c.name, c.status,
           to_char(c.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
           (select count(*) from api_key k where k.api_client_id = c.id and k.status = 'active')::int as "activeKeys"
      from api_client c
     where ($1::bigint is null or c.id = $1) and c.id > $2
     order by c.id
     limit $3`

/** Clients in the order of their ids, with their number of active keys. */
export function listClientDetails(
  database: Queryable,
  { afterId, limit }: { afterId: bigint; limit: number },
): Promise<ClientDetails[]> {
  return database.query(selectClientDetails, [null, afterId, limit])
}

export async function findClient(database: Queryable, id: bigint): Promise<ClientDetails | null> {
  const [client] = await database.query<ClientDetails>(selectClientDetails, [id, INT64_MIN, 1])
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

/** $1 client id bigint, null: all; $2 account id bigint, null: all; $3 after this id bigint; $4 maximum number of rows int */
const selectKeyDetails = statement('select-key-details')`
    select k.id, c.id as "clientRowId", c.client_id as "clientId", c.name as "clientName", k.channel_oa_id as "accountId",
           a.name as "accountName", k.status = 'active' and c.status = 'active' as works, k.status,
           to_char(k.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt"
      from api_key k
      join api_client c on c.id = k.api_client_id
      left join official_account a on a.id = k.channel_oa_id and a.organization_id = k.organization_id
     where ($1::bigint is null or k.api_client_id = $1) and ($2::bigint is null or k.channel_oa_id = $2) and k.id > $3
     order by k.id
     limit $4`

/** The keys of a client or of an account, in the order of their ids, without the keys themselves. */
export function listKeyDetails(
  database: Queryable,
  { client = null, account = null }: { client?: bigint | null; account?: AccountId | null },
  { afterId, limit }: { afterId: bigint; limit: number },
): Promise<KeyDetails[]> {
  return database.query(selectKeyDetails, [client, account, afterId, limit])
}
