/**
 * Removes an official account and everything that is stored about it, in the steps of jobs/remove-account.ts. If LINE has audiences of its
 * segments, they are deleted before, for at most ten minutes, in which the account works. Planner idioms: docs/planner.md.
 *
 * 1. One transaction locks out flushes, replaces the credentials, deletes the keys and pauses the endpoints. Then deliveries and requests
 *    are refused, also by instances that have cached the account: a flush compares the version of the credentials.
 * 2. The rows are deleted in batches, so that no statement is long.
 * 3. One transaction locks out flushes again, and deletes the last rows and the account.
 */
import type { AccountId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, type Statement, statement } from '../postgres/statement.ts'
import { finishErasure, lockOutSendersAndFlushes, type PendingErasure } from './erasure-lock.ts'

/** Members cost the most, with their tombstones, tags and edits: about 50 ms. */
const ROWS_PER_STATEMENT = 2_000

/**
 * Every table with rows of accounts, in the order of deletion. Jobs would change its members, and endpoints would receive erasures. Until
 * 0.5.0, instances of 0.3.0 may continue a removal: `event` and `tracking_event` have the places that they have there, the last ones.
 */
export const ACCOUNT_TABLES = [
  'changed_account',
  'job',
  'endpoint_delivery',
  'endpoint',
  'line_audience',
  'segment',
  'member_edit',
  'audience_member',
  'audience_tag',
  'erased_member',
  'erased_person',
  'tracked_activity',
  'pending_erasure',
  'unsent_message',
  'member_touch',
  'event_key',
  'account_check',
  'account_day',
  'delivery_hour',
  'notification_account',
  'api_key',
  'event',
  'tracking_event',
  'source_day',
] as const

type AccountTable = (typeof ACCOUNT_TABLES)[number]

const nameOf = (table: AccountTable) => `delete-rows-of-account-${table.replaceAll('_', '-')}`

/** A ctid is only unique within one partition, so a batch may be larger. `+ 0` prevents an index scan of all rows of the account. */
const deleteRows = (table: AccountTable) => statement(nameOf(table))`
    with deleted as (
      delete from ${table}
       where ctid = any (array(select ctid from ${table} where channel_oa_id = $1 limit $2)) and channel_oa_id + 0 = $1
      returning 1)
    select count(*)::int from deleted`

/** The same for tables with partitions by day: the times of the batch exclude most of them. */
const deleteOldestRows = (table: AccountTable) => statement(nameOf(table))`
    with batch as materialized (
      select ctid, received_at from ${table}
       where channel_oa_id = $1 and received_at > '-infinity' order by received_at limit $2
    ), deleted as (
      delete from ${table}
       where ctid = any (array(select ctid from batch)) and channel_oa_id + 0 = $1
         and received_at between (select min(received_at) from batch) and (select max(received_at) from batch)
      returning 1)
    select count(*)::int from deleted`

const STATEMENTS = Object.fromEntries(
  ACCOUNT_TABLES.map((table) => [
    table,
    table === 'event' || table === 'tracking_event' ? deleteOldestRows(table) : deleteRows(table),
  ]),
) as Record<AccountTable, Statement>

async function deleteBatch(database: Queryable, table: AccountTable, id: AccountId): Promise<number> {
  const [deleted] = await database.query<{ count: number }>(STATEMENTS[table], [id, ROWS_PER_STATEMENT])
  return deleted?.count ?? 0
}

/** Events are counted by their keys: stored ones cannot be counted without reading those of all accounts. */
type AccountContents = {
  name: string
  members: number
  receivedEvents: number
  endpoints: number
  waitingDeliveries: number
  apiKeys: number
}

const selectContents = statement('select-account-contents')`
    select name,
           (select count(*)::int from audience_member where channel_oa_id = $1) as members,
           (select count(*)::int from event_key where channel_oa_id = $1) as "receivedEvents",
           (select count(*)::int from endpoint where channel_oa_id = $1) as endpoints,
           (select count(*)::int from endpoint_delivery where channel_oa_id = $1) as "waitingDeliveries",
           (select count(*)::int from api_key where channel_oa_id = $1) as "apiKeys"
      from official_account where id = $1 and visible(organization_id, $2)`

export async function findAccountContents(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: AccountId,
): Promise<AccountContents | null> {
  const [contents] = await database.query<AccountContents>(selectContents, [id, organizationIds])
  return contents ?? null
}

/** The new hash keeps the beginning, by which `prove` recognises its accounts. */
const replaceCredentials = statement('replace-account-credentials')`
    update official_account
       set channel_id = null, channel_secret = null, channel_access_token = null, bot_user_id = null, chat_secret = null,
           login_channel_ids = null, oa_hash = oa_hash || random_token(), tracking_key = random_token(), is_being_removed = true
     where id = $1`

const pauseEndpoints = statement('pause-endpoints-of-account')`
    update endpoint set status = 'paused' where channel_oa_id = $1`

const selectPendingErasures = statement('select-pending-erasures-of-account')`
    select channel_oa_id, member_id, user_id, last_event_id from pending_erasure where channel_oa_id = $1`

const deleteAccount = statement('delete-account')`delete from official_account where id = $1`

/** Step 1. */
export async function refuseRequests(transaction: Queryable, id: AccountId): Promise<void> {
  await transaction.query(lockOutSendersAndFlushes, [id])
  await transaction.query(replaceCredentials, [id])
  await transaction.query(pauseEndpoints, [id])
  await deleteBatch(transaction, 'api_key', id)
}

const endAudiences = statement('end-line-audiences-of-account')`
    update line_audience set status = 'deleting', due_at = now() where channel_oa_id = $1`

const endSync = statement(
  'end-sync-of-account',
)`update segment set sync = false where channel_oa_id = $1 and sync`

/** LINE deletes audiences only with the credentials, which step 1 ends. Returns whether there are some. */
export async function leaveAudiences(transaction: Queryable, id: AccountId): Promise<boolean> {
  await transaction.query(endAudiences, [id])
  await transaction.query(endSync, [id])
  return hasAudiences(transaction, id)
}

/** Without credentials, there is nothing to wait for. */
const selectAudience = statement('select-audience-of-account')`
    select l.id from line_audience l join official_account a on a.id = l.channel_oa_id
     where l.channel_oa_id = $1 and can_call_platform(a) limit 1`

export async function hasAudiences(database: Queryable, id: AccountId): Promise<boolean> {
  return (await database.query(selectAudience, [id])).length > 0
}

/** Before step 2, outside of its transactions. */
export async function finishErasuresOf(database: Queryable, id: AccountId): Promise<void> {
  // Another instance that scrubs an erasure moves events, so step 2 would miss them.
  for (const erasure of await database.query<PendingErasure>(selectPendingErasures, [id])) {
    await finishErasure(database, erasure)
  }
}

/** The next batch of steps 2 and 3: an index into ACCOUNT_TABLES. Instances of 0.3.0 read `page`. */
export interface RemovalPosition {
  table: number
  page: 0
}

export const BEGINNING: RemovalPosition = { table: 0, page: 0 }

/** Deletes one batch in a transaction. `next` is null once the account is deleted. */
export async function deleteNextRows(
  transaction: Queryable,
  id: AccountId,
  { table }: RemovalPosition,
): Promise<{ deleted: number; next: RemovalPosition | null }> {
  const { [table]: name } = ACCOUNT_TABLES
  if (name !== undefined) {
    const deleted = await deleteBatch(transaction, name, id)
    return { deleted, next: { table: deleted < ROWS_PER_STATEMENT ? table + 1 : table, page: 0 } }
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
