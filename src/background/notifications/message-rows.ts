/** Statements of a pass over messages that are not sent yet. */
import type { AccountId } from '../../accounts/account.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import type { MessageAccount, RecentMessage, WaitingAccount, WaitingMessage } from './plan-messages.ts'

/**
 * A message that is attempted never changes, so the sender waits for this lock or skips the message. Messages of paused channels are
 * included, because accounts leave them, too.
 */
const lockWaiting = statement('lock-waiting-notifications')`
    select id, notification_channel_id as "channelId", kind, reason, extract(epoch from due_at)::float8 * 1000 as "dueAt"
      from notification
     where sent_at is null and failed_at is null and attempts = 0 and kind in ('problem', 'recovery', 'reminder')
     order by id for update`

export function lockWaitingMessages(transaction: Queryable): Promise<Array<WaitingMessage & Row>> {
  return transaction.query<WaitingMessage & Row>(lockWaiting)
}

/** $1 notification ids bigint[], $2 account ids bigint[] */
const selectWaitingAccounts = statement('select-waiting-notification-accounts')`
    select notification_id as "messageId", channel_oa_id as "accountId", before
      from notification_account where notification_id = any ($1) and channel_oa_id = any ($2)`

export function readWaitingAccounts(
  transaction: Queryable,
  messages: WaitingMessage[],
  accountIds: AccountId[],
): Promise<Array<WaitingAccount & Row>> {
  if (messages.length === 0 || accountIds.length === 0) return Promise.resolve([])
  return transaction.query<WaitingAccount & Row>(selectWaitingAccounts, [
    messages.map(({ id }) => id),
    accountIds,
  ])
}

/** A message waits for the limit of an hour, so it is due within two hours. */
const selectRecent = statement('select-recent-notifications')`
    select notification_channel_id as "channelId", kind, reason, extract(epoch from coalesce(sent_at, due_at))::float8 * 1000 as at
      from notification
     where created_at > now() - interval '3 hours' and coalesce(sent_at, due_at) > now() - interval '1 hour'`

export function readRecent(transaction: Queryable): Promise<Array<RecentMessage & Row>> {
  return transaction.query<RecentMessage & Row>(selectRecent)
}

/** A row of notification that is not stored yet. A pass makes at most one for each channel, kind and reason. */
export interface NewRow {
  channelId: bigint
  kind: string
  reason: string | null
  facts: object
  /** milliseconds since 1970 */
  dueAt: number
}

/** $1 channel ids bigint[]; $2 kinds text[]; $3 reasons text[]; $4 facts text[]; $5 due float8[] */
const insertRows = statement('insert-notifications')`
    insert into notification (notification_channel_id, kind, reason, facts, due_at)
    select channel_id, kind, reason, facts::jsonb, to_timestamp(due_at / 1000)
      from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::float8[])
           as t (channel_id, kind, reason, facts, due_at)
    returning id, notification_channel_id as "channelId", kind, reason`

type InsertedRow = Row & { id: bigint; channelId: bigint; kind: string; reason: string | null }

/** Returns the ids in the order of the rows. */
export async function insertMessages(transaction: Queryable, rows: NewRow[]): Promise<bigint[]> {
  if (rows.length === 0) return []
  const inserted = await transaction.query<InsertedRow>(insertRows, [
    ...[
      rows.map(({ channelId }) => channelId),
      rows.map(({ kind }) => kind),
      rows.map(({ reason }) => reason),
    ],
    ...[rows.map(({ facts }) => JSON.stringify(facts)), rows.map(({ dueAt }) => dueAt)],
  ])
  const keyOf = (row: NewRow | InsertedRow) => `${row.channelId} ${row.kind} ${row.reason}`
  const ids = new Map(inserted.map((row) => [keyOf(row), row.id]))
  return rows.map((row) => ids.get(keyOf(row)) as bigint)
}

/** $1 notification ids bigint[], $2 facts text[] */
const updateFacts = statement('update-notification-facts')`
    update notification n set facts = t.facts::jsonb from unnest($1::bigint[], $2::text[]) as t (id, facts) where n.id = t.id`

export async function storeFacts(
  transaction: Queryable,
  changed: Array<{ id: bigint; facts: object }>,
): Promise<void> {
  if (changed.length === 0) return
  await transaction.query(updateFacts, [
    changed.map(({ id }) => id),
    changed.map(({ facts }) => JSON.stringify(facts)),
  ])
}

/** A statement takes some 100 ms for so many rows, and may take 5 s. */
const ACCOUNTS_PER_STATEMENT = 10_000

/** $1 notification ids bigint[]; $2 account ids bigint[]; $3 before text[]; $4 after text[]; $5 problems text[]; $6 since float8[] */
const insertAccounts = statement('insert-notification-accounts')`
    insert into notification_account (notification_id, channel_oa_id, before, after, problem, since)
    select notification_id, account_id, before, after, problem::jsonb, to_timestamp(since / 1000)
      from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::float8[])
           as t (notification_id, account_id, before, after, problem, since)
        on conflict do nothing`

export type AccountOfMessage = MessageAccount & { messageId: bigint }

export async function storeAccounts(transaction: Queryable, accounts: AccountOfMessage[]): Promise<void> {
  for (let at = 0; at < accounts.length; at += ACCOUNTS_PER_STATEMENT) {
    const some = accounts.slice(at, at + ACCOUNTS_PER_STATEMENT)
    await transaction.query(insertAccounts, [
      ...[some.map(({ messageId }) => messageId), some.map(({ id }) => id)],
      ...[some.map(({ before }) => before), some.map(({ after }) => after)],
      some.map(({ problem }) => (problem === null ? null : JSON.stringify(problem))),
      some.map(({ since }) => since),
    ])
  }
}

/** $1 notification ids bigint[], $2 account ids bigint[] */
const deleteAccounts = statement('delete-notification-accounts')`
    delete from notification_account a using unnest($1::bigint[], $2::bigint[]) as t (notification_id, account_id)
     where a.notification_id = t.notification_id and a.channel_oa_id = t.account_id`

export async function removeAccounts(transaction: Queryable, removed: WaitingAccount[]): Promise<void> {
  if (removed.length === 0) return
  await transaction.query(deleteAccounts, [
    removed.map(({ messageId }) => messageId),
    removed.map(({ accountId }) => accountId),
  ])
}

/** $1 notification ids bigint[] */
const deleteEmpty = statement('delete-empty-notifications')`
    delete from notification n
     where n.id = any ($1) and not exists (select from notification_account a where a.notification_id = n.id)`

export async function deleteEmptyMessages(transaction: Queryable, removed: WaitingAccount[]): Promise<void> {
  if (removed.length === 0) return
  await transaction.query(deleteEmpty, [[...new Set(removed.map(({ messageId }) => messageId))]])
}
