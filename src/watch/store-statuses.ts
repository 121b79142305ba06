/**
 * The only writer of the status of an account. One process at a time makes a pass every 15 s:
 *
 * 1. `claimPass` chooses the process. If it dies, the next pass reads the same facts.
 * 2. `storeStatuses` reads and assesses all accounts page by page, outside of any transaction, and stores each status that has changed.
 * 3. `announce` stores messages about what changed and was not announced, in one transaction.
 *
 * Everything else selects what is stored. The page of an account, `fleet` and `doctor` store what they show first.
 */
import type { FastifyBaseLogger } from 'fastify'
import { AppError } from '../errors.ts'
import { every, type Stop } from '../every.ts'
import type { AccountId } from '../ids.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { type AccountFacts, assessAccount, type Problem } from './account-status.ts'
import { findFleetAccount, problemsOf, readFleet } from './fleet-facts.ts'
import { announce, announcedLevel } from './notifications/announce.ts'

export const PASS_INTERVAL_MS = 15_000

/** $1 float8: milliseconds between passes */
const claimNext = statement('claim-status-pass')`
    update notification_watch set pass = pass + 1, passed_at = now()
     where is_due(passed_at + $1::float8 * interval '1 millisecond', $1::float8 * interval '1 millisecond')
    returning pass, extract(epoch from now())::float8 * 1000 as now`

type ClaimedPass = Row & { pass: bigint; now: number }

export async function claimPass(
  database: Queryable,
  intervalMs = PASS_INTERVAL_MS,
): Promise<ClaimedPass | null> {
  const [claimed] = await database.query<ClaimedPass>(claimNext, [intervalMs])
  return claimed ?? null
}

/**
 * If another process has begun a later pass, this one took too long and stores nothing. A time ahead of the clock was stored before the
 * clock was corrected.
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
           status_since = case when c.status = changed.status
               and ${announcedLevel('c.status', 'c.problems->0')} = ${announcedLevel('changed.status', 'changed.problems->0')}
             then least(c.status_since, now()) else now() end,
           muted_until = case when c.problems->0->'reason' = changed.problems->0->'reason' then c.muted_until end
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

export async function storeStatuses(database: Queryable, pass: bigint | null, now: number): Promise<void> {
  for await (const page of readFleet(database, ALL_ORGANIZATIONS)) await store(database, pass, page, now)
}

// A command or a page stores statuses before it shows them. If the database stores nothing now, they show what is stored.

export const confirmStatuses = (database: Queryable): Promise<void> =>
  storeStatuses(database, null, Date.now()).catch(() => undefined)

export async function confirmStatus(database: Queryable, id: AccountId, now: number): Promise<void> {
  const facts = await findFleetAccount(database, ALL_ORGANIZATIONS, id)
  if (facts !== null) await store(database, null, [facts], now).catch(() => undefined)
}

/** The worst account first. If no pass was completed for five minutes, no figure is better than an outdated one. */
const selectProblems = statement('select-account-problems')`
    select a.id, a.name, ${problemsOf('k')} as problems
      from account_check k join official_account a on a.id = k.channel_oa_id
     where k.problems <> '[]' and a.is_being_removed is not true
       and exists (select from notification_watch where completed_at > now() - interval '5 minutes')
     order by array_position(array['broken', 'degraded'], k.status), a.id`

export const listProblems = (
  database: Queryable,
): Promise<Array<Row & { id: AccountId; name: string; problems: Problem[] }>> =>
  database.query(selectProblems)

const CLAIM_INTERVAL_MS = 2_000

export function startWatch(database: Database, log: FastifyBaseLogger): Stop {
  const pass = accountWatch(database)
  return every('statuses', CLAIM_INTERVAL_MS, async (signal) => {
    await pass().catch((error: Error) => {
      // While the database is down, there is nothing to do. Its messages may quote stored data.
      if (!(error instanceof AppError) && !signal.aborted)
        log.error({ fault: error.name }, 'a pass over the statuses of accounts failed')
    })
  }).stop
}

/** Returns a function that makes a pass, if one is due, and returns whether it stored what it saw. */
export const accountWatch = (database: Database) => async (): Promise<boolean> => {
  const claimed = await claimPass(database)
  if (claimed === null) return false
  await storeStatuses(database, claimed.pass, claimed.now)
  return announce(database, claimed.pass)
}
