/**
 * Removes an official account and everything that is stored about it. If LINE has audiences of its segments, they are deleted before,
 * for at most ten minutes, in which the account works.
 *
 * 1. One transaction locks out flushes, replaces its credentials, deletes its keys and pauses its endpoints. After that, deliveries and
 *    requests are refused. Instances that have cached the account refuse them too, because a flush compares the version of the
 *    credentials. Endpoints do not receive a `member.erased` for each member.
 * 2. Its rows are deleted in batches, so that no statement is long.
 * 3. One transaction locks out flushes again, and deletes the last rows and the account.
 *
 * jobs/remove-account.ts takes the steps.
 */

import type { OrganizationIds } from '../operators/actor.ts'
import { finishErasure, lockOutSendersAndFlushes, type PendingErasure } from '../postgres/erasure-lock.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { AccountId } from './account.ts'
import {
  ACCOUNT_PARTITIONED_TABLES,
  ACCOUNT_TABLES,
  countPages,
  deleteBatch,
  deleteRange,
  PAGES_PER_STATEMENT,
  ROWS_PER_STATEMENT,
} from './account-rows.ts'

/** `receivedEvents` counts deduplication keys, because stored events cannot be counted without reading those of all accounts. */
type AccountContents = {
  name: string
  members: number
  receivedEvents: number
  endpoints: number
  waitingDeliveries: number
  apiKeys: number
}

/** $1 account id bigint, $2 organization ids bigint[], null: all */
const selectContents = statement('select-account-contents')`
    select name,
           (select count(*)::int from audience_member where channel_oa_id = $1) as members,
           (select count(*)::int from event_key where channel_oa_id = $1) as "receivedEvents",
           (select count(*)::int from endpoint where channel_oa_id = $1) as endpoints,
           (select count(*)::int from endpoint_delivery where channel_oa_id = $1) as "waitingDeliveries",
           (select count(*)::int from api_key where channel_oa_id = $1) as "apiKeys"
      from official_account where id = $1 and visible(organization_id, $2)`

/** Counts what a removal would delete. Returns null if the account does not exist for the actor. */
export async function findAccountContents(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: AccountId,
): Promise<AccountContents | null> {
  const [contents] = await database.query<AccountContents>(selectContents, [id, organizationIds])
  return contents ?? null
}

/**
 * The new hash keeps the beginning, by which `prove` recognises its accounts.
 *
 * $1 account id bigint
 */
const replaceCredentials = statement('replace-account-credentials')`
    update official_account
       set channel_id = null, channel_secret = null, channel_access_token = null, bot_user_id = null, chat_secret = null,
           login_channel_ids = null, oa_hash = oa_hash || random_token(), tracking_key = random_token(), is_being_removed = true
     where id = $1`

/** $1 account id bigint */
const pauseEndpoints = statement('pause-endpoints-of-account')`
    update endpoint set status = 'paused' where channel_oa_id = $1`

/** $1 account id bigint */
const selectPendingErasures = statement('select-pending-erasures-of-account')`
    select channel_oa_id, member_id, user_id, last_event_id from pending_erasure where channel_oa_id = $1`

/** $1 account id bigint */
const deleteAccount = statement('delete-account')`delete from official_account where id = $1`

/** Step 1. */
export async function refuseRequests(transaction: Queryable, id: AccountId): Promise<void> {
  await transaction.query(lockOutSendersAndFlushes, [id])
  await transaction.query(replaceCredentials, [id])
  await transaction.query(pauseEndpoints, [id])
  await deleteBatch(transaction, 'api_key', id)
}

/** $1 account id bigint */
const endAudiences = statement('end-line-audiences-of-account')`
    update line_audience set status = 'deleting', due_at = now() where channel_oa_id = $1`

/** $1 account id bigint */
const endSync = statement(
  'end-sync-of-account',
)`update segment set sync = false where channel_oa_id = $1 and sync`

/** LINE deletes audiences only with the credentials, which step 1 ends. Returns whether there are some to delete before. */
export async function leaveAudiences(transaction: Queryable, id: AccountId): Promise<boolean> {
  await transaction.query(endAudiences, [id])
  await transaction.query(endSync, [id])
  return hasAudiences(transaction, id)
}

/** $1 account id bigint. Without credentials, there is nothing to wait for. */
const selectAudience = statement('select-audience-of-account')`
    select l.id from line_audience l join official_account a on a.id = l.channel_oa_id
     where l.channel_oa_id = $1 and can_call_platform(a) limit 1`

export async function hasAudiences(database: Queryable, id: AccountId): Promise<boolean> {
  return (await database.query(selectAudience, [id])).length > 0
}

/** Before step 2, outside of its transactions. */
export async function finishErasuresOf(database: Queryable, id: AccountId): Promise<void> {
  // Another instance that scrubs an erasure moves events, so step 2 would miss them. After the erasures, nothing moves events.
  for (const erasure of await database.query<PendingErasure>(selectPendingErasures, [id])) {
    await finishErasure(database, erasure)
  }
}

/** The next batch of steps 2 and 3: an index into ACCOUNT_TABLES and then ACCOUNT_PARTITIONED_TABLES, and a page of the latter. */
export interface RemovalPosition {
  table: number
  page: number
}

export const BEGINNING: RemovalPosition = { table: 0, page: 0 }

/**
 * Deletes one batch in a transaction. `next` is null once the account is deleted.
 * @param receivedSince the account has no events that were received before this time, so older partitions need not be read
 */
export async function deleteNextRows(
  transaction: Queryable,
  id: AccountId,
  { table, page }: RemovalPosition,
  receivedSince = '-infinity',
): Promise<{ deleted: number; next: RemovalPosition | null }> {
  const { [table]: name } = ACCOUNT_TABLES
  const following = { table: table + 1, page: 0 }
  if (name !== undefined) {
    const deleted = await deleteBatch(transaction, name, id)
    return { deleted, next: deleted < ROWS_PER_STATEMENT ? following : { table, page } }
  }
  const { [table - ACCOUNT_TABLES.length]: partitioned } = ACCOUNT_PARTITIONED_TABLES
  if (partitioned !== undefined) {
    if (page >= (await countPages(transaction, partitioned))) return { deleted: 0, next: following }
    const deleted = await deleteRange(transaction, partitioned, id, page, receivedSince)
    return { deleted, next: { table, page: page + PAGES_PER_STATEMENT } }
  }
  await transaction.query(lockOutSendersAndFlushes, [id])
  let deleted = 0
  for (const last of ACCOUNT_TABLES) {
    const count = await deleteBatch(transaction, last, id)
    deleted += count
    if (count >= ROWS_PER_STATEMENT) return { deleted, next: BEGINNING }
  }
  await transaction.query(deleteAccount, [id])
  return { deleted, next: null }
}
