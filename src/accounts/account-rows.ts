/**
 * The rows of an official account in every table, and their deletion in batches. remove-account.ts has the order of a removal.
 * Planner idioms: docs/planner.md.
 */

import { type Queryable, type Statement, statement } from '../postgres/statement.ts'
import type { AccountId } from './account.ts'

/** Rows deleted in one statement. A member costs the most, with its tombstone, tags and edits: about 50 ms in all. */
export const ROWS_PER_STATEMENT = 2_000
/** Pages of each partition that one statement reads: 128 × 8 KiB = 1 MiB, some 2,000 events. */
export const PAGES_PER_STATEMENT = 128

/** Every table with rows of accounts, in the order of deletion. Jobs would change its members, and endpoints would receive erasures. */
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
  'kept_delivery',
  'event_key',
  'account_check',
  'account_day',
  'delivery_hour',
  'notification_account',
  'api_key',
] as const

/** Partitioned tables without an index on the account. They are read completely, page by page. */
export const ACCOUNT_PARTITIONED_TABLES = ['event', 'tracking_event'] as const

type AccountTable = (typeof ACCOUNT_TABLES)[number]
type PartitionedTable = (typeof ACCOUNT_PARTITIONED_TABLES)[number]

/**
 * Statements by table. A ctid is only unique within one partition, so a batch may be larger. `+ 0` prevents an index scan of all rows
 * of the account in the second check.
 *
 * $1 account id bigint
 * $2 maximum number of rows int
 */
const deleteRows = Object.fromEntries(
  ACCOUNT_TABLES.map((table) => [
    table,
    statement(`delete-rows-of-account-${table.replaceAll('_', '-')}`)`
    with deleted as (
      delete from ${table}
       where ctid = any (array(select ctid from ${table} where channel_oa_id = $1 limit $2)) and channel_oa_id + 0 = $1
      returning 1)
    select count(*)::int from deleted`,
  ]),
) as Record<AccountTable, Statement>

/** Deletes at most ROWS_PER_STATEMENT rows, and returns their number. */
export async function deleteBatch(database: Queryable, table: AccountTable, id: AccountId): Promise<number> {
  const [deleted] = await database.query<{ count: number }>(deleteRows[table], [id, ROWS_PER_STATEMENT])
  return deleted?.count ?? 0
}

/** $1 table text. The pages of its largest partition. */
const selectPages = statement('select-partition-pages')`
    select coalesce(max(pg_relation_size(relid) / current_setting('block_size')::int), 0)::int as pages
      from pg_partition_tree($1::text::regclass) where isleaf`

export async function countPages(database: Queryable, table: PartitionedTable): Promise<number> {
  const [size] = await database.query<{ pages: number }>(selectPages, [table])
  return size?.pages ?? 0
}

/**
 * By table.
 *
 * $1 account id bigint
 * $2 and $3 text: the first ctid, and the one after the last
 * $4 text: rows that were received earlier stay
 */
const deleteRowsOfPages = Object.fromEntries(
  ACCOUNT_PARTITIONED_TABLES.map((table) => [
    table,
    statement(`delete-rows-of-account-${table.replaceAll('_', '-')}`)`
    with deleted as (
      delete from ${table}
       where channel_oa_id = $1 and ctid >= $2::tid and ctid < $3::tid and received_at >= $4::timestamptz
      returning 1)
    select count(*)::int from deleted`,
  ]),
) as Record<PartitionedTable, Statement>

/** Deletes the rows in PAGES_PER_STATEMENT pages of each partition. Flushes no longer add rows, so one pass finds all. */
export async function deleteRange(
  database: Queryable,
  table: PartitionedTable,
  id: AccountId,
  page: number,
  receivedSince: string,
): Promise<number> {
  const range = [`(${page},0)`, `(${page + PAGES_PER_STATEMENT},0)`]
  const values = [id, ...range, receivedSince]
  const [deleted] = await database.query<{ count: number }>(deleteRowsOfPages[table], values)
  return deleted?.count ?? 0
}
