/**
 * The only writer of the status of an account. A pass reads the facts of the whole fleet page by page, assesses them, and stores each
 * status that has changed. Everything else selects what is stored.
 *
 * A status is older than its facts by one pass at most: one process at a time makes a pass every 15 s, or at once when an operator has
 * changed something. The page of an account, `fleet` and `doctor` store what they show first. If no pass was completed for five
 * minutes, doctor reports it and the metrics have no statuses. Only `completed_at` says when statuses were confirmed, for all accounts
 * together: a time for each would be 30,000 writes every 15 s.
 */
import type { AccountId } from '../accounts/account.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { assessAccount, type Problem } from './account-status.ts'
import { type AccountFacts, readAccountFacts, readFleet } from './fleet-facts.ts'

export const PASS_INTERVAL_MS = 15_000

/**
 * Returns no row unless this process makes the next pass.
 *
 * $1 float8: milliseconds between passes; $2 float8: the same after a change by an operator
 */
const claimNext = statement('claim-status-pass')`
    update notification_watch w set pass = pass + 1, passed_at = now()
     where is_due(passed_at + $1::float8 * interval '1 millisecond', $1::float8 * interval '1 millisecond')
        or passed_at <= now() - $2::float8 * interval '1 millisecond'
           and exists (select from activity where occurred_at > w.passed_at)
    returning pass, extract(epoch from now())::float8 * 1000 as now`

type ClaimedPass = Row & { pass: bigint; now: number }

export async function claimPass(
  database: Queryable,
  intervalMs: number,
  leastMs = intervalMs,
): Promise<ClaimedPass | null> {
  const [claimed] = await database.query<ClaimedPass>(claimNext, [intervalMs, leastMs])
  return claimed ?? null
}

/**
 * Locks only what it changes. It skips rows that others lock, until the next pass. If another process has begun a later pass, this one
 * took too long and stores nothing. A time ahead of the clock was stored before the clock was corrected.
 *
 * $1 pass bigint, null: any; $2 account ids bigint[]; $3 statuses text[]; $4 problems text[]
 */
const storePage = statement('store-account-statuses')`
    with changed as materialized (
      select c.channel_oa_id as id, t.status, t.problems::jsonb as problems
        from unnest($2::bigint[], $3::text[], $4::text[]) as t (id, status, problems)
        join account_check c on c.channel_oa_id = t.id
       where ((c.status, c.problems) is distinct from (t.status, t.problems::jsonb) or c.status_since > now() + interval '1 minute')
         and ($1::bigint is null or $1 = (select pass from notification_watch))
         for no key update of c skip locked)
    update account_check c
       set status = changed.status, problems = changed.problems,
           status_since = case when c.status = changed.status then least(c.status_since, now()) else now() end
      from changed where c.channel_oa_id = changed.id`

async function store(database: Queryable, pass: bigint | null, page: AccountFacts[], now: number) {
  const assessed = page.map((facts) => assessAccount(facts, now))
  await database.query(storePage, [
    pass,
    page.map(({ id }) => id),
    assessed.map(({ status }) => status),
    assessed.map(({ problems }) => JSON.stringify(problems)),
  ])
}

/** Holds one page of facts at a time in memory. */
export async function storeStatuses(database: Queryable, pass: bigint | null, now: number): Promise<void> {
  for await (const page of readFleet(database, ALL_ORGANIZATIONS)) await store(database, pass, page, now)
}

// Before a command or a page shows statuses. A database that does not store shows what is stored.

export const confirmStatuses = (database: Queryable): Promise<void> =>
  storeStatuses(database, null, Date.now()).catch(() => undefined)

export async function confirmStatus(database: Queryable, id: AccountId, now: number): Promise<void> {
  const facts = await readAccountFacts(database, ALL_ORGANIZATIONS, id)
  if (facts !== null) await store(database, null, [facts], now).catch(() => undefined)
}

/** The worst account first. None if no pass was completed for five minutes: no figure is better than an outdated one. */
const selectProblems = statement('select-account-problems')`
    select a.id, a.name, k.problems
      from account_check k join official_account a on a.id = k.channel_oa_id
     where k.problems <> '[]' and a.is_being_removed is not true
       and exists (select from notification_watch where completed_at > now() - interval '5 minutes')
     order by array_position(array['broken', 'degraded'], k.status), a.id`

export const listProblems = (
  database: Queryable,
): Promise<Array<Row & { id: AccountId; name: string; problems: Problem[] }>> =>
  database.query(selectProblems)
