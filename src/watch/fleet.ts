/** The fleet: every official account with its facts and its status. */
import type { AccountId } from '../accounts/account.ts'
import { LINE_TODAY } from '../line-api/line-day.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import { ACCOUNT_STATUSES, type AccountHealth } from './account-status.ts'
import { type AccountFacts, readAccountFacts, readFleet } from './fleet-facts.ts'

export type FleetAccount = Omit<AccountFacts, keyof AccountHealth> & AccountHealth

/** Worst accounts first. Equals are ordered by id. */
export async function listFleet(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<FleetAccount[]> {
  const fleet: FleetAccount[] = []
  for await (const page of readFleet(database, organizationIds)) fleet.push(...(page as FleetAccount[]))
  return fleet.sort((a, b) => rank(b) - rank(a))
}

export async function findFleetAccount(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: AccountId,
): Promise<FleetAccount | null> {
  return (await readAccountFacts(database, organizationIds, id)) as FleetAccount | null
}

/** The table of the fleet shows a third of the facts, because it may have 10,000 rows. */
export type FleetRow = ReturnType<typeof fleetRow>

export function fleetRow(account: FleetAccount) {
  const [worst] = account.problems
  // Building the object from parts would take 20 µs.
  return {
    id: account.id,
    name: account.name,
    basicId: account.basicId,
    organizationName: account.organizationName,
    status: account.status,
    problem: worst ?? null,
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

const rank = ({ status }: AccountHealth): number => ACCOUNT_STATUSES.indexOf(status)

export type DeliveryHour = {
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
  /** LINE's day, which begins at 15:00 UTC of the previous day */
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

const HOURS = 24
const DAYS = 30

export interface FleetCharts {
  id: AccountId
  /** LINE's deliveries of the last 24 hours, oldest first; the last one is the present hour */
  hours: number[]
  /** people who followed, of the last 30 days, oldest first; null: not counted on that day */
  days: Array<number | null>
}

/** $1 account ids bigint[]; $2 hours int; $3 days int; $4 organization ids bigint[], null: all. Values with their ages. */
const selectCharts = statement('select-fleet-charts')`
    select a.id, hour.ages as "hourAges", hour.deliveries, day.ages as "dayAges", day.following
      from (select id from official_account
             where id = any ($1) and visible(organization_id, $4)) a
     cross join lateral (
       select coalesce(array_agg(extract(epoch from date_trunc('hour', now()) - h.hour)::int / 3600), '{}') as ages,
              coalesce(array_agg(h.deliveries::float8), '{}') as deliveries
         from delivery_hour h
        where h.channel_oa_id = a.id and h.source = 'line'
          and h.hour > date_trunc('hour', now()) - $2 * interval '1 hour') hour
     cross join lateral (
       select coalesce(array_agg(${LINE_TODAY} - d.day), '{}') as ages,
              coalesce(array_agg(d.following::float8), '{}') as following
         from account_day d
        where d.channel_oa_id = a.id and d.following is not null and d.day > ${LINE_TODAY} - $3::int) day`

interface ChartRow extends Row {
  id: AccountId
  hourAges: number[]
  deliveries: number[]
  dayAges: number[]
  following: number[]
}

/** Accounts that do not exist, or that the operator does not see, are left out. */
export async function readFleetCharts(
  database: Queryable,
  organizationIds: OrganizationIds,
  ids: AccountId[],
): Promise<FleetCharts[]> {
  const rows = await database.query<ChartRow>(selectCharts, [ids, HOURS, DAYS, organizationIds])
  return rows.map(({ id, hourAges, deliveries, dayAges, following }) => ({
    id,
    hours: spread(HOURS, 0, hourAges, deliveries),
    days: spread<number | null>(DAYS, null, dayAges, following),
  }))
}

/** Places values by their age in a list that ends with the present one. */
function spread<T>(length: number, nothing: T, ages: number[], values: T[]): T[] {
  const list = Array<T>(length).fill(nothing)
  for (const [index, age] of ages.entries()) list[length - 1 - age] = values[index] as T
  return list
}
