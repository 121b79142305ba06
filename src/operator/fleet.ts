/** The fleet: every official account with its facts and what they say about it. */
import type { AccountId } from '../accounts/account.ts'
import { LINE_TODAY } from '../line-day.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { ACCOUNT_WORDS, type AccountStatus, judgeAccount } from './account-status.ts'
import { type AccountFacts, readAccountFacts, readFleet } from './fleet-facts.ts'

export type FleetAccount = AccountFacts & AccountStatus

/** The worst accounts first; among equals, by id. */
export async function listFleet(database: Queryable, now: number): Promise<FleetAccount[]> {
  const fleet: FleetAccount[] = []
  for await (const page of readFleet(database))
    for (const facts of page) fleet.push(Object.assign(facts, judgeAccount(facts, now)))
  return fleet.sort((a, b) => rank(b) - rank(a))
}

/** Null if the account does not exist. */
export async function findFleetAccount(
  database: Queryable,
  id: AccountId,
  now: number,
): Promise<FleetAccount | null> {
  const facts = await readAccountFacts(database, id)
  return facts === null ? null : { ...facts, ...judgeAccount(facts, now) }
}

/** What the table of the fleet shows of an account: a third of its facts, because the table may have 10,000 rows. */
export type FleetRow = ReturnType<typeof fleetRow>

export function fleetRow(account: FleetAccount) {
  const [worst] = account.problems
  // One literal: assembled from parts, an object takes 20 µs.
  return {
    id: account.id,
    name: account.name,
    basicId: account.basicId,
    organizationName: account.organizationName,
    word: account.word,
    problem: worst === undefined ? null : { reason: worst.reason, message: worst.message },
    problemCount: account.problems.length,
    lastDeliveryAt: account.lastDeliveryAt,
    deliveries24h: account.deliveries24h,
    following: account.following,
    growth7d: account.growth7d,
    unapplied: account.unapplied,
    endpointsPending: account.endpointsPending,
    endpointsFailed: account.endpointsFailed,
    quotaLimit: account.quotaLimit,
    quotaUsed: account.quotaUsed,
  }
}

const rank = ({ word }: AccountStatus): number => ACCOUNT_WORDS.indexOf(word)

export type DeliveryHour = {
  /** when the hour began */
  hour: string
  deliveries: number
  accepted: number
  duplicates: number
  unapplied: number
  refused: number
  failed: number
}

/** $1 account id bigint, $2 days int */
const selectDeliveryHours = statement('select-delivery-hours')`
    select to_char(hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as hour, sum(deliveries)::float8 as deliveries,
           sum(accepted)::float8 as accepted, sum(duplicates)::float8 as duplicates, sum(unapplied)::float8 as unapplied,
           sum(refused)::float8 as refused, sum(failed)::float8 as failed
      from delivery_hour h
     where channel_oa_id = $1 and h.hour > now() - $2 * interval '1 day'
     group by h.hour
     order by h.hour`

/** The hours of the last days in which the account was delivered to, by all sources. */
export function listDeliveryHours(database: Queryable, id: AccountId, days: number): Promise<DeliveryHour[]> {
  return database.query(selectDeliveryHours, [id, days])
}

export type AccountDay = {
  /** the platform's day, which begins at 15:00 UTC of the day before */
  day: string
  following: number | null
  blocked: number | null
  firstFollows: number | null
  returns: number | null
  unfollows: number | null
  /** the platform's own statistics: everybody who ever followed, and those of them who have blocked the account */
  lineFollowers: number | null
  lineBlocks: number | null
}

/** $1 account id bigint, $2 days int */
const selectAccountDays = statement('select-account-days')`
    select day::text, following::float8 as following, blocked::float8 as blocked, first_follows::float8 as "firstFollows",
           returns::float8 as returns, unfollows::float8 as unfollows, line_followers::float8 as "lineFollowers",
           line_blocks::float8 as "lineBlocks"
      from account_day
     where channel_oa_id = $1 and day > ${LINE_TODAY} - $2::int
     order by day`

export function listAccountDays(database: Queryable, id: AccountId, days: number): Promise<AccountDay[]> {
  return database.query(selectAccountDays, [id, days])
}
