/** Removes API clients. organizations.ts removes organizations, and remove-account.ts removes official accounts. */
import { type Queryable, statement } from '../postgres/statement.ts'

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
