/** Official accounts: how a delivery or a key finds its account. */
import type { Queryable, Row, Statement } from '../postgres/statement.ts'
import { Secret, secretOrNull } from '../secret.ts'

export type AccountId = bigint
export type OrganizationId = bigint

export interface Account {
  id: AccountId
  organizationId: OrganizationId
  channelId: string | null
  channelSecret: Secret | null
  channelAccessToken: Secret | null
  botUserId: string | null
  basicId: string | null
  chatSecret: Secret | null
  /** the support chat's inbox that is this account's; null: the chat has no other */
  chatInboxId: string | null
  oaHash: Secret
  trackingKey: string
  /** Changes whenever a value that admits deliveries changes. */
  credentialsVersion: bigint
  /** a destination other than botUserId that deliveries named, if that was noted within the hour */
  foreignDestination: string | null
}

interface AccountRow extends Row {
  id: bigint
  organization_id: bigint
  channel_id: string | null
  channel_secret: string | null
  channel_access_token: string | null
  bot_user_id: string | null
  basic_id: string | null
  chat_secret: string | null
  chat_inbox_id: string | null
  oa_hash: string
  tracking_key: string
  credentials_version: bigint
  foreign_destination: string | null
}

/** Deliveries for another bot are noted again after this: often enough to tell whether they still come. */
const isNotedLately = `foreign_destination_at > now() - interval '1 hour'`

/** Blank is none: other programs write it, and one that no webhook has would pass over everything. */
export function chatInboxOf(account: string): string {
  return `nullif(btrim(${account}.chat_inbox_id), '')`
}

const columns = `id, organization_id, channel_id, channel_secret, channel_access_token, bot_user_id, basic_id,
       chat_secret, ${chatInboxOf('official_account')} as chat_inbox_id, oa_hash, tracking_key, credentials_version,
       case when ${isNotedLately} then foreign_destination end as foreign_destination`

const selectById = { name: 'account-by-id', text: `select ${columns} from official_account where id = $1` }
const selectByOaHash = {
  name: 'account-by-oa-hash',
  text: `select ${columns} from official_account where oa_hash = $1`,
}
const selectByTrackingKey = {
  name: 'account-by-tracking-key',
  text: `select ${columns} from official_account where tracking_key = $1`,
}
const selectInOrganization = {
  name: 'account-in-organization',
  text: `select ${columns} from official_account where id = $1 and organization_id = $2`,
}

export function findAccount(database: Queryable, id: AccountId): Promise<Account | null> {
  return findOne(database, selectById, [id])
}

/** The account of a support chat's callback address. */
export function findAccountByOaHash(database: Queryable, oaHash: string): Promise<Account | null> {
  return findOne(database, selectByOaHash, [oaHash])
}

export function findAccountByTrackingKey(database: Queryable, trackingKey: string): Promise<Account | null> {
  return findOne(database, selectByTrackingKey, [trackingKey])
}

/** The account of a scope; null also where the account belongs to another organization. */
export function findAccountInOrganization(
  database: Queryable,
  id: AccountId,
  organizationId: OrganizationId,
): Promise<Account | null> {
  return findOne(database, selectInOrganization, [id, organizationId])
}

/** Remembers that deliveries for this account name another bot: its webhook or its bot user id is set up wrong. */
export async function flagForeignDestination(
  database: Queryable,
  id: AccountId,
  destination: string,
): Promise<void> {
  await database.query(
    `update official_account set foreign_destination = $2, foreign_destination_at = now()
      where id = $1 and bot_user_id <> $2 and not coalesce(foreign_destination = $2 and ${isNotedLately}, false)`,
    [id, destination],
  )
}

async function findOne(
  database: Queryable,
  statement: Statement,
  values: unknown[],
): Promise<Account | null> {
  const [row] = await database.query<AccountRow>(statement, values)
  if (row === undefined) return null
  return {
    id: row.id,
    organizationId: row.organization_id,
    channelId: row.channel_id,
    channelSecret: secretOrNull(row.channel_secret),
    channelAccessToken: secretOrNull(row.channel_access_token),
    botUserId: row.bot_user_id,
    basicId: row.basic_id,
    chatSecret: secretOrNull(row.chat_secret),
    chatInboxId: row.chat_inbox_id,
    oaHash: new Secret(row.oa_hash),
    trackingKey: row.tracking_key,
    credentialsVersion: row.credentials_version,
    foreignDestination: row.foreign_destination,
  }
}
