/** Removes organizations, API clients and API keys. remove-account.ts removes official accounts. */
import type { OrganizationId } from '../accounts/account.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'

export type OrganizationContents = { name: string; accounts: number; apiKeys: number }

/** $1 organization id bigint. Keys of the organization without an account give no access. */
const selectOrganization = statement('select-organization-contents')`
    select name, (select count(*)::int from official_account where organization_id = $1) as accounts,
           (select count(*)::int from api_key where organization_id = $1) as "apiKeys"
      from organization where id = $1`

/** $1 organization id bigint. Nobody adds an account to the organization until the transaction ends. */
const lockOrganization = statement('lock-organization')`select from organization where id = $1 for update`

/** $1 organization id bigint */
const deleteKeysOfOrganization = statement('delete-keys-of-organization')`
    delete from api_key where organization_id = $1`

/** $1 organization id bigint */
const deleteOrganization = statement('delete-organization')`delete from organization where id = $1`

/** What a removal would delete. Null if the organization does not exist. */
export async function findOrganizationContents(
  database: Queryable,
  id: OrganizationId,
): Promise<OrganizationContents | null> {
  const [contents] = await database.query<OrganizationContents>(selectOrganization, [id])
  return contents ?? null
}

/** Removes an organization unless it has accounts, whose number it returns. Returns null if the organization does not exist. */
export function removeOrganization(
  database: Transactions,
  id: OrganizationId,
): Promise<OrganizationContents | null> {
  return database.transaction(async (transaction) => {
    await transaction.query(lockOrganization, [id])
    const contents = await findOrganizationContents(transaction, id)
    if (contents === null || contents.accounts > 0) return contents
    await transaction.query(deleteKeysOfOrganization, [id])
    await transaction.query(deleteOrganization, [id])
    return contents
  })
}

export type ClientContents = { clientId: string; name: string | null; apiKeys: number }

/** $1 api_client.id bigint */
const selectClient = statement('select-client-contents')`
    select client_id as "clientId", name,
           (select count(*)::int from api_key where api_client_id = $1) as "apiKeys"
      from api_client where id = $1`

/** $1 api_client.id bigint. Nobody adds a key to the client until the transaction ends. */
const lockClient = statement('lock-client')`select from api_client where id = $1 for update`

/** $1 api_client.id bigint */
const deleteKeysOfClient = statement('delete-keys-of-client')`delete from api_key where api_client_id = $1`

/** $1 api_client.id bigint */
const deleteClient = statement('delete-client')`delete from api_client where id = $1`

/** What a removal would delete. Null if the client does not exist. */
export async function findClientContents(database: Queryable, id: bigint): Promise<ClientContents | null> {
  const [contents] = await database.query<ClientContents>(selectClient, [id])
  return contents ?? null
}

/** Removes a client and its keys, in a transaction. Returns null if the client does not exist. */
export async function removeClient(transaction: Queryable, id: bigint): Promise<ClientContents | null> {
  await transaction.query(lockClient, [id])
  const contents = await findClientContents(transaction, id)
  if (contents === null) return null
  await transaction.query(deleteKeysOfClient, [id])
  await transaction.query(deleteClient, [id])
  return contents
}
