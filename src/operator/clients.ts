/** API clients and their keys, as operators see them: never with a secret. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import type { Queryable } from '../postgres/statement.ts'

export type ClientSummary = { id: bigint; clientId: string; name: string | null; status: string }

const selectClients = `
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

const selectKeys = `
  select id, api_client_id as client, channel_oa_id as account, organization_id as organization, status
    from api_key
   order by id`

export function listKeys(database: Queryable): Promise<KeySummary[]> {
  return database.query(selectKeys)
}
