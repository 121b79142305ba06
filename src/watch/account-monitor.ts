/**
 * Verifies every account with LINE and stores LINE's statistics, so that operators notice an expired token or a disabled webhook
 * before their customers do. Each account is due once an hour, in one instance. Planner idioms: docs/planner.md.
 */
import { type Account, type AccountId, findAccount } from '../accounts/account.ts'
import { type Verifier, verifyAccount } from '../accounts/verify.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError } from '../errors.ts'
import { every, type Repetition } from '../jobs/every.ts'
import { LINE_TODAY } from '../line-api/line-day.ts'
import type { MessageQuota } from '../line-api/line-responses.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { refreshDueFigures } from './account-figures.ts'

const IDLE_MS = 5_000
/** Accounts checked at the same time. A check takes about seven calls to LINE, so 1,000 accounts take some minutes per hour. */
const CONCURRENCY = 4

export class AccountMonitor {
  readonly #verifier: Verifier
  readonly #database: Database
  #repetitions: Repetition[] = []

  constructor(database: Database, verifier: Omit<Verifier, 'database'>) {
    this.#database = database
    this.#verifier = { ...verifier, database }
  }

  start(): void {
    const pauseAfter = (count: number) => (count === 0 ? IDLE_MS : 0)
    this.#repetitions = [
      every(IDLE_MS, async (signal) => pauseAfter(await this.checkDue(signal))),
      every(IDLE_MS, async () => pauseAfter(await refreshDueFigures(this.#database))),
    ]
  }

  async stop(): Promise<void> {
    await Promise.all(this.#repetitions.map(({ stop }) => stop()))
  }

  /** Returns the number of accounts that were due. Throws DatabaseUnavailable. */
  async checkDue(signal = AbortSignal.any([])): Promise<number> {
    const due = await takeDueAccounts(this.#database, CONCURRENCY)
    const checked = due.filter(({ can_call_platform }) => can_call_platform)
    await Promise.all(checked.map(({ id }) => this.#check(id, signal)))
    return due.length
  }

  async #check(id: AccountId, signal: AbortSignal): Promise<void> {
    const account = await findAccount(this.#database, id).catch((error) => {
      if (!(error instanceof UnreadableSecret)) throw error
      return storeCheckResult(this.#database, id, { fault: error.message }).then(() => null)
    })
    if (account === null) return
    const fault = await this.#verify(account)
    const result: CheckResult = fault === null ? await this.#readFigures(account, signal) : { fault }
    await storeCheckResult(this.#database, id, result)
  }

  /** @returns why LINE did not respond, or null if the outcome is stored */
  async #verify(account: Account): Promise<string | null> {
    try {
      await verifyAccount(this.#verifier, account, {}, false)
      return null
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'platform_unavailable') throw error
      return 'LINE is unreachable, slow or rate limiting'
    }
  }

  /** Figures that LINE does not return, for example for lack of permission, stay unchanged. */
  async #readFigures(account: Account, signal: AbortSignal): Promise<CheckResult> {
    const { lineApi } = this.#verifier
    const [token, quota] = await Promise.all([
      lineApi.tokenInfo(account, signal),
      lineApi.messageQuota(account, signal),
    ])
    const missing = await this.#database.query<{ day: string }>(selectMissingDays, [account.id])
    for (const { day } of missing) {
      const statistics = await lineApi.followerStatistics(account, day, signal)
      if (!statistics.ok) break
      if (statistics.value !== null) {
        const { followers, reachable, blocks } = statistics.value
        await this.#database.query(storeStatistics, [account.id, day, followers, reachable, blocks])
      }
    }
    return {
      fault: null,
      ...(token.ok ? { tokenLifetimeSeconds: token.value?.expiresInSeconds ?? null } : {}),
      ...(quota.ok ? { quota: quota.value } : {}),
    }
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
  /** An access token, or the credentials that issue one, are stored. */
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
  /** undefined keeps the stored value, because LINE did not return one */
  tokenLifetimeSeconds?: number | null
  quota?: MessageQuota
}

/** After a fault, an account is due again after this time instead of an hour. */
const RETRY_MINUTES = 10

/**
 * $1 bigint: account; $2 text: fault or null; $3 boolean: $4 is known; $4 float8: seconds until the token expires, or null; $5 boolean: $6
 * and $7 are known; $6 bigint: quota or null; $7 bigint: used messages; $8 int: minutes after a fault
 */
const storeCheck = statement('store-account-check')`
    update account_check
       set checked_at = now(), fault = $2::text,
           token_expires_at = case when $3::boolean then now() + $4::float8 * interval '1 second' else token_expires_at end,
           quota_limit = case when $5::boolean then $6::bigint else quota_limit end,
           quota_used = case when $5::boolean then $7::bigint else quota_used end,
           due_at = case when $2::text is null then due_at else now() + $8 * interval '1 minute' end
     where channel_oa_id = $1`

async function storeCheckResult(
  database: Queryable,
  id: AccountId,
  { fault, tokenLifetimeSeconds, quota }: CheckResult,
): Promise<void> {
  await database.query(storeCheck, [
    id,
    fault,
    tokenLifetimeSeconds !== undefined,
    tokenLifetimeSeconds ?? null,
    quota !== undefined,
    quota?.limit ?? null,
    quota?.used ?? null,
    RETRY_MINUTES,
  ])
}
