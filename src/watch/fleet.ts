/** The fleet, worst accounts first, and the charts of accounts. */
import type { AccountId } from '../ids.ts'
import { LINE_TODAY } from '../line-api/line-day.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { ACCOUNT_STATUSES, type FleetAccount } from './account-status.ts'
import { readFleet } from './fleet-facts.ts'

export async function listFleet(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<FleetAccount[]> {
  const fleet: FleetAccount[] = []
  for await (const page of readFleet(database, organizationIds)) fleet.push(...page)
  const rank = ({ status }: FleetAccount) => ACCOUNT_STATUSES.indexOf(status)
  return fleet.sort((a, b) => rank(b) - rank(a))
}

/** The table of the fleet shows a third of the facts, because it may have 10,000 rows. */
export type FleetRow = ReturnType<typeof fleetRow>

export function fleetRow(account: FleetAccount) {
  const [worst] = account.problems
  return {
    id: account.id,
    name: account.name,
    basicId: account.basicId,
    organizationId: account.organizationId,
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

export type FleetCharts = {
  id: AccountId
  /** LINE's deliveries of the last 24 hours, oldest first; the last one is the present hour */
  hours: number[]
  /** people who followed, of the last 30 days, oldest first; null: not counted on that day */
  days: Array<number | null>
}

/** $1 account ids bigint[]; $2 hours int; $3 days int; $4 organization ids bigint[], null: all */
const selectCharts = statement('select-fleet-charts')`
    select a.id,
           array(select coalesce(h.deliveries::float8, 0)
                   from generate_series(0, $2::int - 1) as ago (hours)
                   left join delivery_hour h on h.channel_oa_id = a.id and h.source = 'line'
                                            and h.hour = date_trunc('hour', now()) - ago.hours * interval '1 hour'
                  order by ago.hours desc) as hours,
           array(select d.following::float8
                   from generate_series(0, $3::int - 1) as ago (days)
                   left join account_day d on d.channel_oa_id = a.id and d.day = ${LINE_TODAY} - ago.days
                  order by ago.days desc) as days
      from official_account a
     where a.id = any ($1) and visible(a.organization_id, $4)`

export const readFleetCharts = (
  database: Queryable,
  organizationIds: OrganizationIds,
  ids: AccountId[],
): Promise<FleetCharts[]> => database.query(selectCharts, [ids, HOURS, DAYS, organizationIds])
