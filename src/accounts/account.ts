import { Secret, secretOrNull } from '../config/secret.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, type Statement, statement } from '../postgres/statement.ts'

type Lookups = Pick<Database, 'lookup' | 'secretKeys'>

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
  /** The support chat's inbox of this account. Null: every inbox of the chat. */
  chatInboxId: string | null
  oaHash: Secret
  trackingKey: string
  /** The LINE Login channel whose ID tokens prove people in tracking events. */
  loginChannelId: string | null
  /** Changes with every value that admits deliveries or determines their account. */
  credentialsVersion: bigint
  /** A `destination` other than botUserId in a delivery of the last hour. */
  foreignDestination: string | null
}

type SecretName = 'channelSecret' | 'channelAccessToken' | 'chatSecret'

type AccountRow = Omit<Account, SecretName | 'oaHash'> &
  Record<SecretName, string | null> & { oaHash: string }

/**
 * A blank chat_inbox_id or login_channel_id counts as null. Other programs write these columns, and a blank filter would drop every
 * webhook.
 */
const SELECT_ACCOUNT = `
    select id, organization_id as "organizationId", channel_id as "channelId", channel_secret as "channelSecret",
           channel_access_token as "channelAccessToken", bot_user_id as "botUserId", basic_id as "basicId",
           chat_secret as "chatSecret", nullif(btrim(chat_inbox_id), '') as "chatInboxId", oa_hash as "oaHash",
           tracking_key as "trackingKey", nullif(btrim(login_channel_id), '') as "loginChannelId",
           credentials_version as "credentialsVersion",
           case when foreign_destination_at > now() - interval '1 hour' then foreign_destination end
             as "foreignDestination"
      from official_account`

/** $1 id bigint */
const selectById = statement('account-by-id')`
    ${SELECT_ACCOUNT}
     where id = $1`

/** $1 oa_hash text */
const selectByOaHash = statement('account-by-oa-hash')`
    ${SELECT_ACCOUNT}
     where oa_hash = $1`

/** $1 tracking_key text */
const selectByTrackingKey = statement('account-by-tracking-key')`
    ${SELECT_ACCOUNT}
     where tracking_key = $1`

/** $1 id bigint, $2 organization_id bigint */
const selectInOrganization = statement('account-in-organization')`
    ${SELECT_ACCOUNT}
     where id = $1 and organization_id = $2`

/**
 * $1 id bigint, $2 destination text. Writes at most once per hour for the same destination, and once per minute otherwise. The
 * deliveries of several bots behind one module channel alternate, and without a limit each would cost a commit.
 */
const updateForeignDestination = statement('update-foreign-destination')`
    update official_account
       set foreign_destination = $2, foreign_destination_at = now()
     where id = $1
       and bot_user_id <> $2
       and (foreign_destination_at > now() - case when foreign_destination = $2 then interval '1 hour'
                                                  else interval '1 minute' end) is not true`

export function findAccount(database: Lookups, id: AccountId): Promise<Account | null> {
  return findOne(database, selectById, [id])
}

/** For work that has no connection of its own for lookups. */
export function findAccountOn(database: Queryable, id: AccountId): Promise<Account | null> {
  const lookup: Lookups['lookup'] = (_kind, statement, values) => database.query(statement, values)
  return findAccount({ lookup, secretKeys: database.secretKeys }, id)
}

/** Returns null for a blank hash, which anybody could guess. */
export async function findAccountByOaHash(database: Lookups, oaHash: string): Promise<Account | null> {
  if (oaHash.trim() === '') return null
  return findOne(database, selectByOaHash, [oaHash])
}

/** Returns null for a blank key, so that a program without a key does not write into an account. */
export async function findAccountByTrackingKey(
  database: Lookups,
  trackingKey: string,
): Promise<Account | null> {
  if (trackingKey.trim() === '') return null
  return findOne(database, selectByTrackingKey, [trackingKey])
}

/** Returns null if the account does not exist or belongs to another organization. */
export function findAccountInOrganization(
  database: Lookups,
  id: AccountId,
  organizationId: OrganizationId,
): Promise<Account | null> {
  return findOne(database, selectInOrganization, [id, organizationId])
}

/** Records that a delivery was for another bot user id. The webhook or `bot_user_id` is misconfigured. */
export async function flagForeignDestination(
  database: Queryable,
  id: AccountId,
  destination: string,
): Promise<void> {
  await database.query(updateForeignDestination, [id, destination])
}

async function findOne(database: Lookups, statement: Statement, values: unknown[]): Promise<Account | null> {
  const [row] = await database.lookup<AccountRow>('account', statement, values)
  if (row === undefined) return null
  const textOf = (column: 'channel_secret' | 'channel_access_token' | 'chat_secret', stored: string | null) =>
    database.secretKeys.decrypt(`official_account.${column}`, row.id, stored)
  const chatSecret = textOf('chat_secret', row.chatSecret)
  return {
    ...row,
    channelSecret: secretOrNull(textOf('channel_secret', row.channelSecret)),
    channelAccessToken: secretOrNull(textOf('channel_access_token', row.channelAccessToken)),
    // Null accepts unsigned callbacks. A blank secret refuses all callbacks, because signing was intended.
    chatSecret: chatSecret ? new Secret(chatSecret) : null,
    oaHash: new Secret(row.oaHash),
  }
}
