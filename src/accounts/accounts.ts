/** Official accounts for operators, without secrets. */
import { requireVisible } from '../errors.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Verification } from './verification.ts'

type AccountSummary = {
  id: AccountId
  organizationId: OrganizationId
  name: string
  channelId: string | null
  basicId: string | null
  /** outcome of the last verification; null: never verified */
  verified: boolean | null
}

const selectAccounts = statement('select-accounts')`
    select id, organization_id as "organizationId", name, channel_id as "channelId", basic_id as "basicId",
           (verification->>'verified')::boolean as verified
      from official_account
     order by id`

export function listAccounts(database: Queryable): Promise<AccountSummary[]> {
  return database.query(selectAccounts)
}

export type AccountMatch = {
  id: AccountId
  name: string
  basicId: string | null
  organizationName: string
}

/** $1 part of the name, id or basic id text, in any case; $2 maximum number of rows int; $3 organization ids bigint[], null: all */
const selectMatches = statement('search-accounts')`
    select a.id, a.name, a.basic_id as "basicId", o.name as "organizationName"
      from official_account a join organization o on o.id = a.organization_id
     where visible(a.organization_id, $3)
       and ($1 = '' or strpos(lower(a.name), lower($1)) > 0 or strpos(lower(a.basic_id), lower($1)) > 0 or a.id::text = $1)
     order by a.id::text = $1 desc, strpos(lower(a.name), lower($1)) = 1 desc, a.name, a.id
     limit $2`

export function searchAccounts(
  database: Queryable,
  organizationIds: OrganizationIds,
  text: string,
  limit: number,
): Promise<AccountMatch[]> {
  return database.query(selectMatches, [text, limit, organizationIds])
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
  loginChannelIds: string[]
  hasChannelSecret: boolean
  hasChannelAccessToken: boolean
  hasChatSecret: boolean
}

const selectAccountDetails = statement('select-account-details')`
    select id, organization_id as "organizationId", name, channel_id as "channelId", bot_user_id as "botUserId",
           basic_id as "basicId", chat_inbox_id as "chatInboxId", oa_hash as "oaHash", tracking_key as "trackingKey",
           coalesce(login_channel_ids, '{}') as "loginChannelIds",
           coalesce(channel_secret, '') ~ '\\S' as "hasChannelSecret",
           coalesce(channel_access_token, '') ~ '\\S' as "hasChannelAccessToken",
           coalesce(chat_secret, '') ~ '\\S' as "hasChatSecret"
      from official_account
     where id = $1 and visible(organization_id, $2)`

/** Includes the two identifiers that callbacks and web pages need. Throws NotVisible. */
export async function findAccountDetails(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: AccountId,
): Promise<AccountDetails> {
  const [account] = await database.query<AccountDetails>(selectAccountDetails, [id, organizationIds])
  return requireVisible(account, 'account', id)
}

const selectVerification = statement('select-verification')`
    select verification from official_account where id = $1`

export async function findVerification(database: Queryable, id: AccountId): Promise<Verification | null> {
  const [row] = await database.query<{ verification: Verification | null }>(selectVerification, [id])
  return row?.verification ?? null
}
