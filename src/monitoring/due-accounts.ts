/** Which accounts are due to be checked, and what the checks found: the statements behind account-monitor.ts. */
import type { AccountId } from '../accounts/account.ts'
import type { FollowerStatistics, MessageQuota } from '../line-api/statistics.ts'
import { LINE_TODAY } from '../line-day.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'

/** Accounts that are new are due. */
const addMissing: Statement = {
  name: 'add-account-checks',
  text: `
    insert into account_check (channel_oa_id)
    select a.id from official_account a
     where not exists (select from account_check c where c.channel_oa_id = a.id)
        on conflict do nothing`,
}

/**
 * Takes accounts that are due and have credentials, for an hour: if this instance dies, others check them then. Rows that another
 * instance takes are skipped.
 *
 * $1 int: accounts
 */
const takeDue: Statement = {
  name: 'take-due-accounts',
  text: `
    with due as (
      select c.channel_oa_id
        from account_check c join official_account a on a.id = c.channel_oa_id
       where c.due_at <= now()
         and (a.channel_access_token ~ '\\S' or (a.channel_id <> '' and a.channel_secret ~ '\\S'))
       order by c.due_at limit $1
         for update of c skip locked
    )
    update account_check c set due_at = now() + interval '1 hour'
      from due where c.channel_oa_id = due.channel_oa_id
    returning c.channel_oa_id as id`,
}

export async function takeDueAccounts(database: Queryable, max: number): Promise<AccountId[]> {
  await database.query(addMissing)
  const rows = await database.query<{ id: AccountId }>(takeDue, [max])
  return rows.map(({ id }) => id)
}

/** $1 bigint: account. The days of LINE that have ended but are not stored yet, of the last three, as 20261122. */
const selectMissingDays: Statement = {
  name: 'select-missing-days',
  text: `
    select to_char(ended.day, 'YYYYMMDD') as day
      from generate_series(${LINE_TODAY} - 3,
                           ${LINE_TODAY} - 1, interval '1 day') as ended (day)
     where not exists (select from account_day d
                        where d.channel_oa_id = $1 and d.day = ended.day::date and d.line_followers is not null)`,
}

export async function findMissingDays(database: Queryable, id: AccountId): Promise<string[]> {
  const rows = await database.query<{ day: string }>(selectMissingDays, [id])
  return rows.map(({ day }) => day)
}

/** $1 bigint: account; $2 text: day; $3, $4 and $5 bigint: followers, reachable ones, blocks. */
const storeStatistics: Statement = {
  name: 'store-follower-statistics',
  text: `
    insert into account_day (channel_oa_id, day, line_followers, line_reachable, line_blocks)
    values ($1, $2::text::date, $3, $4, $5)
        on conflict (channel_oa_id, day) do update set
           line_followers = excluded.line_followers, line_reachable = excluded.line_reachable,
           line_blocks = excluded.line_blocks`,
}

export async function storeFollowerStatistics(
  database: Queryable,
  id: AccountId,
  day: string,
  { followers, reachable, blocks }: FollowerStatistics,
): Promise<void> {
  await database.query(storeStatistics, [id, day, followers, reachable, blocks])
}

export interface CheckResult {
  /** why LINE did not answer; null: it did */
  fault: string | null
  /** undefined: LINE did not say, so the stored value stays */
  tokenLifetimeSeconds?: number | null
  quota?: MessageQuota
}

/** After a fault, an account is due again after this time instead of an hour. */
const RETRY_MINUTES = 10

/**
 * $1 bigint: account; $2 text: fault or null; $3 boolean: $4 is known; $4 float8: seconds until the token expires, or null;
 * $5 boolean: $6 and $7 are known; $6 bigint: quota or null; $7 bigint: used messages; $8 int: minutes after a fault.
 */
const storeCheck: Statement = {
  name: 'store-account-check',
  text: `
    update account_check
       set checked_at = now(), fault = $2::text,
           token_expires_at = case when $3::boolean then now() + $4::float8 * interval '1 second' else token_expires_at end,
           quota_limit = case when $5::boolean then $6::bigint else quota_limit end,
           quota_used = case when $5::boolean then $7::bigint else quota_used end,
           due_at = case when $2::text is null then due_at else now() + $8 * interval '1 minute' end
     where channel_oa_id = $1`,
}

export async function storeCheckResult(
  database: Queryable,
  id: AccountId,
  { fault, tokenLifetimeSeconds, quota }: CheckResult,
): Promise<void> {
  await database.query(storeCheck, [
    ...[id, fault, tokenLifetimeSeconds !== undefined, tokenLifetimeSeconds ?? null],
    ...[quota !== undefined, quota?.limit ?? null, quota?.used ?? null, RETRY_MINUTES],
  ])
}
