/** Writes organizations, official accounts, API clients and API keys. Other programs may write the same tables. */
import { randomBytes } from 'node:crypto'
import { SECRET_COLUMNS, type SecretKeys } from '../config/secret-keys.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { insertWithFreeId } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

export interface AccountColumns {
  name: string
  channel_id: string | null
  channel_secret: string | null
  channel_access_token: string | null
  bot_user_id: string | null
  basic_id: string | null
  chat_secret: string | null
  chat_inbox_id: string | null
  oa_hash: string
  tracking_key: string
  login_channel_ids: string[] | null
}

/** Field → column */
export const COLUMNS = {
  name: 'name',
  channelId: 'channel_id',
  channelSecret: 'channel_secret',
  channelAccessToken: 'channel_access_token',
  botUserId: 'bot_user_id',
  basicId: 'basic_id',
  chatSecret: 'chat_secret',
  chatInboxId: 'chat_inbox_id',
  oaHash: 'oa_hash',
  trackingKey: 'tracking_key',
  loginChannelIds: 'login_channel_ids',
} as const satisfies { [column in keyof AccountColumns as Camel<column>]: column }

type Camel<name extends string> = name extends `${infer head}_${infer tail}`
  ? `${head}${Capitalize<Camel<tail>>}`
  : name

const NAMES = Object.values(COLUMNS).join(', ')

export type NewAccount = Pick<AccountColumns, 'name'> & Partial<AccountColumns>

const insertOrganization = statement('insert-organization')`
    insert into organization (id, name) values ($1, $2) returning id`

/** $1 organization id bigint, $2 values jsonb: an object whose keys are column names, $3 id bigint */
const insertAccount = statement('insert-account')`
    insert into official_account (id, organization_id, ${NAMES})
    select $3, $1, ${NAMES}
      from jsonb_populate_record(null::official_account,
                                 jsonb_build_object('oa_hash', random_token(), 'tracking_key', random_token())
                                 || jsonb_strip_nulls($2::jsonb))
    returning id, oa_hash as "oaHash", tracking_key as "trackingKey"`

/** $1 account id bigint, $2 values jsonb: a column that it does not contain keeps its value */
const updateAccountColumns = statement('update-account-columns')`
    update official_account as account
       set (${NAMES}) = (select ${NAMES} from jsonb_populate_record(account, $2::jsonb))
     where id = $1`

/** $1 id bigint, $2 client id text, $3 client secret text, $4 name text or null */
const insertClient = statement('insert-client')`
    insert into api_client (id, client_id, client_secret, name) values ($1, $2, $3, $4) returning id`

const revokeClientById = statement('revoke-client')`
    update api_client set status = 'revoked' where id = $1 and status <> 'revoked' returning id`

/** $1 api_client.id bigint, $2 key text, $3 account id bigint, $4 id bigint */
const insertKey = statement('insert-key')`
    insert into api_key (id, api_client_id, key, channel_oa_id, organization_id)
    select $4, $1, $2, id, organization_id from official_account where id = $3
    returning id`

const revokeKeyById = statement('revoke-key')`
    update api_key set status = 'revoked' where id = $1 and status <> 'revoked' returning id`

export async function addOrganization(database: Queryable, name: string): Promise<OrganizationId> {
  const [added] = await insertWithFreeId(database, 'organization', insertOrganization, (id) => [id, name])
  return inserted(added).id
}

const encryptAccount = <C extends Partial<AccountColumns>>(keys: SecretKeys, id: AccountId, columns: C): C =>
  mapSecrets(columns, (column, text) => keys.encrypt(`official_account.${column}`, id, text))

/** A secret that no key reads is empty, so that it can be replaced or removed. */
export const decryptAccount = <C extends Partial<AccountColumns>>(
  keys: SecretKeys,
  id: AccountId,
  stored: C,
): C =>
  mapSecrets(stored, (column, value) => keys.decryptOrNull(`official_account.${column}`, id, value) ?? '')

type SecretName = (typeof SECRET_COLUMNS)['official_account'][number]

function mapSecrets<C extends Partial<AccountColumns>>(
  columns: C,
  map: (column: SecretName, value: string) => string | null,
): C {
  const mapped: Partial<AccountColumns> = { ...columns }
  for (const column of SECRET_COLUMNS.official_account) {
    const value = columns[column]
    if (typeof value === 'string') mapped[column] = map(column, value)
  }
  return mapped as C
}

export type AddedAccount = {
  id: AccountId
  /** Path segment of the support chat's callback URL. */
  oaHash: string
  trackingKey: string
}

/** `oa_hash` and `tracking_key` are random unless they are given. */
export async function addAccount(
  database: Queryable,
  organizationId: OrganizationId,
  columns: NewAccount,
): Promise<AddedAccount> {
  const [added] = await insertWithFreeId<AddedAccount>(database, 'official_account', insertAccount, (id) => [
    organizationId,
    JSON.stringify(encryptAccount(database.secretKeys, id, columns)),
    id,
  ])
  return inserted(added)
}

export async function updateAccount(
  database: Queryable,
  id: AccountId,
  changes: Partial<AccountColumns>,
): Promise<void> {
  const encrypted = encryptAccount(database.secretKeys, id, changes)
  await database.query(updateAccountColumns, [id, JSON.stringify(encrypted)])
}

export interface AddedClient {
  id: bigint
  clientId: string
  clientSecret: string
}

export async function addClient(database: Queryable, name: string | null): Promise<AddedClient> {
  const [clientId, clientSecret] = [randomCredential('client'), newClientSecret()]
  const valuesOf = (id: bigint) => [id, clientId, clientSecret, name]
  const [added] = await insertWithFreeId(database, 'api_client', insertClient, valuesOf)
  return { id: inserted(added).id, clientId, clientSecret }
}

/** Returns whether it was not revoked before. */
export async function revokeClient(database: Queryable, id: bigint): Promise<boolean> {
  return (await database.query(revokeClientById, [id])).length > 0
}

export interface AddedKey {
  id: bigint
  key: string
}

/** Returns null if the account does not exist. */
export async function addKey(
  database: Queryable,
  clientRowId: bigint,
  accountId: AccountId,
): Promise<AddedKey | null> {
  const key = randomCredential('key')
  const valuesOf = (id: bigint) => [clientRowId, key, accountId, id]
  const [added] = await insertWithFreeId(database, 'api_key', insertKey, valuesOf)
  return added === undefined ? null : { id: added.id, key }
}

/** Returns whether it was not revoked before. */
export async function revokeKey(database: Queryable, id: bigint): Promise<boolean> {
  return (await database.query(revokeKeyById, [id])).length > 0
}

export const newClientSecret = () => randomCredential('secret')

/** 192 random bits in characters that need no quoting in URLs, shells and JSON */
const randomCredential = (prefix: string) => `${prefix}_${randomBytes(24).toString('base64url')}`

function inserted<R>(row: R | null | undefined): R {
  if (row === null || row === undefined) throw new Error('the insert returned no row')
  return row
}
