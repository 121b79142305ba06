/** The small charts in the table of the fleet. They are read only for the accounts that a page shows. */
import type { AccountId } from '../accounts/account.ts'
import { LINE_TODAY } from '../line-day.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'

const HOURS = 24
const DAYS = 30

export interface FleetCharts {
  id: AccountId
  /** LINE's deliveries of the last 24 hours, oldest first; the last one is the present hour */
  hours: number[]
  /** people who followed, of the last 30 days, oldest first; null: not counted on that day */
  days: Array<number | null>
}

/** $1 account ids bigint[]; $2 hours int; $3 days int. Values with their ages in hours and in days. */
const selectCharts = statement('select-fleet-charts')`
    select a.id, hour.ages as "hourAges", hour.deliveries, day.ages as "dayAges", day.following
      from unnest($1::bigint[]) as a (id)
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

/** Charts of accounts that do not exist are empty. */
export async function readFleetCharts(database: Queryable, ids: AccountId[]): Promise<FleetCharts[]> {
  const rows = await database.query<ChartRow>(selectCharts, [ids, HOURS, DAYS])
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
