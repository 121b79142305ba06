/** Verifies every account with LINE once an hour, in one instance, and stores LINE's statistics. Planner idioms: docs/planner.md. */
import { type Account, findAccount } from '../accounts/account.ts'
import { type Verifier, verifyAccount } from '../accounts/verify.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError } from '../errors.ts'
import { every, type Repetition } from '../every.ts'
import { type AccountId, toJson } from '../ids.ts'
import { LINE_TODAY } from '../line-api/line-day.ts'
import type { MessageQuota } from '../line-api/line-responses.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { refreshDueFigures } from './account-figures.ts'

const IDLE_MS = 5_000
/** Accounts checked at the same time. A check takes about seven calls to LINE, so 1,000 accounts take some minutes per hour. */
const CONCURRENCY = 4

type Monitored = Omit<Verifier, 'database'>

export function monitorAccounts(database: Database, verifier: Monitored): Repetition[] {
  const pauseAfter = (count: number) => (count === 0 ? IDLE_MS : 0)
  return [
    every('account checks', IDLE_MS, async (signal) =>
      pauseAfter(await checkDueAccounts(database, verifier, signal)),
    ),
    every('account figures', IDLE_MS, async () => pauseAfter(await refreshDueFigures(database))),
  ]
}

/** Returns the number of accounts that were due. Throws DatabaseUnavailable. */
export async function checkDueAccounts(
  database: Database,
  verifier: Monitored,
  signal = AbortSignal.any([]),
): Promise<number> {
  const due = await takeDueAccounts(database, CONCURRENCY)
  const checked = due.filter(({ can_call_platform }) => can_call_platform)
  const check = async ({ id }: DueAccount) => {
    const result = await checkAccount({ ...verifier, database }, id, signal)
    if (result !== null) await database.query(storeCheck, [id, toJson(result), RETRY_MINUTES])
  }
  await Promise.all(checked.map(check))
  return due.length
}

/** Returns null if the account was removed. */
async function checkAccount(
  verifier: Verifier & { database: Database },
  id: AccountId,
  signal: AbortSignal,
): Promise<CheckResult | null> {
  try {
    const account = await findAccount(verifier.database.accounts, id)
    if (account === null) return null
    await verifyAccount(verifier, account, {}, false)
    return await readFigures(verifier, account, signal)
  } catch (error) {
    if (error instanceof UnreadableSecret) return { fault: error.message }
    if (!(error instanceof AppError) || error.code !== 'platform_unavailable') throw error
    return { fault: 'LINE is unreachable, slow or rate limiting' }
  }
}

/** Figures that LINE does not return, for example for lack of permission, stay unchanged. */
async function readFigures(
  { database, lineApi }: Verifier,
  account: Account,
  signal: AbortSignal,
): Promise<CheckResult> {
  const [token, quota] = await Promise.all([
    lineApi.tokenInfo(account, signal),
    lineApi.messageQuota(account, signal),
  ])
  const missing = await database.query<{ day: string }>(selectMissingDays, [account.id])
  for (const { day } of missing) {
    const statistics = await lineApi.followerStatistics(account, day, signal)
    if (!statistics.ok) break
    if (statistics.value === null) continue
    const { followers, reachable, blocks } = statistics.value
    await database.query(storeStatistics, [account.id, day, followers, reachable, blocks])
  }
  return {
    fault: null,
    ...(token.ok ? { tokenLifetimeSeconds: token.value?.expiresInSeconds ?? null } : {}),
    ...(quota.ok ? { quota: quota.value } : {}),
  }
}

/** A lease of an hour. A trigger makes an account due when it is added and when its credentials change. $1 int: accounts */
const takeDue = statement('take-due-accounts')`
    with due as materialized (
      select c.channel_oa_id
        from due_ranges(interval '1 hour') range
       cross join lateral (
         select channel_oa_id from account_check
          where due_at >= range.since and due_at < range.until order by due_at limit $1 for update skip locked) c
       limit $1
    ), taken as (
      update account_check set due_at = now() + interval '1 hour'
       where channel_oa_id = any (array(select channel_oa_id from due))
    )
    select due.channel_oa_id as id, a.can_call_platform
      from due cross join lateral (select can_call_platform(account) from official_account account
                                    where id = due.channel_oa_id offset 0) a`

interface DueAccount extends Row {
  id: AccountId
  can_call_platform: boolean
}

export function takeDueAccounts(database: Queryable, max: number): Promise<DueAccount[]> {
  return database.query<DueAccount>(takeDue, [max])
}

/** Days of LINE, as 20261122, among the last three that have ended but are not stored. $1 bigint: account */
const selectMissingDays = statement('select-missing-days')`
    select to_char(ended.day, 'YYYYMMDD') as day
      from generate_series(${LINE_TODAY} - 3,
                           ${LINE_TODAY} - 1, interval '1 day') as ended (day)
     where not exists (select from account_day d
                        where d.channel_oa_id = $1 and d.day = ended.day::date and d.line_followers is not null)`

/** $1 bigint: account; $2 text: day; $3, $4 and $5 bigint: followers, reachable ones, blocks. */
const storeStatistics = statement('store-follower-statistics')`
    insert into account_day (channel_oa_id, day, line_followers, line_reachable, line_blocks)
    values ($1, $2::text::date, $3, $4, $5)
        on conflict (channel_oa_id, day) do update set
           line_followers = excluded.line_followers, line_reachable = excluded.line_reachable,
           line_blocks = excluded.line_blocks`

interface CheckResult {
  /** why LINE did not respond; null if it did */
  fault: string | null
  /** absent: LINE did not return it, so the stored value stays */
  tokenLifetimeSeconds?: number | null
  quota?: MessageQuota
}

/** After a fault, an account is due again after this time instead of an hour. */
const RETRY_MINUTES = 10

/** $1 bigint: account; $2 jsonb: CheckResult; $3 int: minutes after a fault */
const storeCheck = statement('store-account-check')`
    update account_check
       set checked_at = now(), fault = result->>'fault',
           token_expires_at = case when result ? 'tokenLifetimeSeconds'
                                   then now() + (result->>'tokenLifetimeSeconds')::float8 * interval '1 second'
                                   else token_expires_at end,
           quota_limit = case when result ? 'quota' then (result->'quota'->>'limit')::bigint else quota_limit end,
           quota_used = case when result ? 'quota' then (result->'quota'->>'used')::bigint else quota_used end,
           due_at = case when result->>'fault' is null then due_at else now() + $3 * interval '1 minute' end
      from (select $2::jsonb as result) given
     where channel_oa_id = $1`
