/** Organizations and official accounts, as operators see them: never with a secret. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import type { Queryable } from '../postgres/statement.ts'

export type OrganizationSummary = { id: OrganizationId; name: string }

const selectOrganizations = `
  select id, name from organization order by id`

export function listOrganizations(database: Queryable): Promise<OrganizationSummary[]> {
  return database.query(selectOrganizations)
}

export type AccountSummary = {
  id: AccountId
  organizationId: OrganizationId
  name: string
  channelId: string | null
  basicId: string | null
  /** outcome of the last verification; null: never verified */
  verified: boolean | null
}

const selectAccounts = `
  select id, organization_id as "organizationId", name, channel_id as "channelId", basic_id as "basicId",
         (verification->>'verified')::boolean as verified
    from official_account
   order by id`

export function listAccounts(database: Queryable): Promise<AccountSummary[]> {
  return database.query(selectAccounts)
}

export type AccountDetails = {
  id: AccountId
  organizationId: OrganizationId
  name: string
  channelId: string | null
  botUserId: string | null
  basicId: string | null
  chatInboxId: string | null
  oaHash: string
  trackingKey: string
  loginChannelId: string | null
  hasChannelSecret: boolean
  hasChannelAccessToken: boolean
  hasChatSecret: boolean
}

/** $1 account id bigint */
const selectAccountDetails = `
  select id, organization_id as "organizationId", name, channel_id as "channelId", bot_user_id as "botUserId",
         basic_id as "basicId", chat_inbox_id as "chatInboxId", oa_hash as "oaHash", tracking_key as "trackingKey",
         login_channel_id as "loginChannelId",
         channel_secret is not null as "hasChannelSecret",
         channel_access_token is not null as "hasChannelAccessToken", chat_secret is not null as "hasChatSecret"
    from official_account
   where id = $1`

/** Includes the two identifiers that callbacks and web pages need. Null if the account does not exist. */
export async function findAccountDetails(database: Queryable, id: AccountId): Promise<AccountDetails | null> {
  const [account] = await database.query<AccountDetails>(selectAccountDetails, [id])
  return account ?? null
}
