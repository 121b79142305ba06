/** The report of followers, read from the days that account-days.ts counts. docs/report.md defines each figure. */
import { findOrganizationContents } from '../accounts/organizations.ts'
import { refuseInput } from '../http/validate.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type Figures, figuresOf, NONE, type Report, type ReportRow } from './report-rows.ts'

export const GROUPINGS = ['total', 'day', 'week', 'month', 'organization', 'account', 'source'] as const
export type Grouping = (typeof GROUPINGS)[number]

export interface ReportQuery {
  /** first and last day, such as 2026-11-01 */
  from: string
  to: string
  by: Grouping
  /** null: all that the operator sees */
  organization: OrganizationId | null
  account: AccountId | null
}

/** Days are kept for three years. */
const DAYS_MAX = 1_096

/** Rows of sources. A person names the source, so there may be as many as people. */
const SOURCES_MAX = 1_000

const DAY_MS = 86_400_000

/** Days, both inclusive. */
interface Period {
  from: string
  to: string
}

type Read = Figures & { period: number; id: bigint | null; name: string | null; firstDay: string | null }

const FLOWS = `
           sum(d.first_follows)::float8 as "newFollowers", sum(d.returns)::float8 as returns, sum(d.unfollows)::float8 as blocks,
           (sum(d.first_follows) + sum(d.returns) - sum(d.unfollows))::float8 as net, sum(d.blocked)::float8 as "blockedWithin7Days"`

/**
 * Figures of periods, by account, by organization or of all together. A level is that of the last count in the 7 days until the end of the period.
 *
 * $1 first days date[]; $2 last days date[]; $3 'account', 'organization' or another text; $4 organization ids bigint[], null: all;
 * $5 organization bigint or null; $6 account bigint or null
 */
const selectFigures = statement('select-report')`
    select p.number::int as period, a.key as id, max(a.key_name) as name, min(first.day)::text as "firstDay", ${FLOWS},
           sum(d.followers)::float8 as followers, sum(d.line_followers)::float8 as "lineFollowers",
           sum(d.line_blocks)::float8 as "lineBlocks", sum(d.line_followers - d.line_before)::float8 as "lineNewFollowers"
      from unnest($1::date[], $2::date[]) with ordinality as p (since, until, number)
     cross join (
       select a.id, case $3 when 'account' then a.id when 'organization' then o.id end as key,
              case $3 when 'account' then a.name when 'organization' then o.name end as key_name
         from official_account a join organization o on o.id = a.organization_id
        where visible(o.id, $4) and o.id = coalesce($5, o.id) and a.id = coalesce($6, a.id)) a
      left join lateral (
       select day from account_day where channel_oa_id = a.id and first_follows is not null order by day limit 1) first on true
     cross join lateral (
       select sum(first_follows) filter (where day >= p.since) as first_follows, sum(returns) filter (where day >= p.since) as returns,
              sum(unfollows) filter (where day >= p.since) as unfollows,
              -- Days that an older release counted lack this figure, and a part of the period would look like the whole.
              case when count(*) filter (where day >= p.since and first_follows is not null and blocked_within_7_days is null) = 0
                   then sum(blocked_within_7_days) filter (where day >= p.since) end as blocked,
              (array_agg(following order by day desc) filter (where following is not null and day > p.until - 7))[1] as followers,
              (array_agg(line_followers order by day desc) filter (where line_followers is not null and day > p.until - 7))[1] as line_followers,
              (array_agg(line_blocks order by day desc) filter (where line_followers is not null and day > p.until - 7))[1] as line_blocks,
              (array_agg(line_followers order by day desc) filter (where line_followers is not null and day < p.since))[1] as line_before
         from account_day
        where channel_oa_id = a.id and day between p.since - 7 and p.until) d
     group by p.number, a.key`

/**
 * Figures of sources, those with most new followers first. A source's followers are those who came and did not leave since it was first counted.
 *
 * $1 first days date[]; $2 last days date[]; $3 organization ids bigint[], null: all; $4 organization bigint or null; $5 account bigint or null
 */
const selectSources = statement('select-report-of-sources')`
    select p.number::int as period, d.source, ${FLOWS}, sum(d.since_first)::float8 as followers,
           sum(d.following)::float8 as "stillFollowing", sum(d.active)::float8 as active
      from unnest($1::date[], $2::date[]) with ordinality as p (since, until, number)
     cross join lateral (
       select s.source, sum(first_follows) filter (where day >= p.since) as first_follows, sum(returns) filter (where day >= p.since) as returns,
              sum(unfollows) filter (where day >= p.since) as unfollows, sum(blocked_within_7_days) filter (where day >= p.since) as blocked,
              sum(following) filter (where day >= p.since) as following, sum(active) filter (where day >= p.since) as active,
              sum(first_follows + returns - unfollows) as since_first
         from source_day s
        where s.day <= p.until
          and s.channel_oa_id = any (array(
            select id from official_account
             where visible(organization_id, $3) and organization_id = coalesce($4, organization_id) and id = coalesce($5, id)))
        group by s.source) d
     group by p.number, d.source
    having sum(d.first_follows) + sum(d.returns) + sum(d.unfollows) > 0
     order by p.number, "newFollowers" desc, d.source
     limit $6`

/** Throws `invalid_input`, and NotVisible for an organization that the operator does not see. */
export async function readReport(
  database: Queryable,
  organizationIds: OrganizationIds,
  query: ReportQuery,
): Promise<Report> {
  const { from, to, by, organization, account } = checkQuery(query)
  if (organization !== null) await findOrganizationContents(database, organizationIds, organization)
  const periods = periodsOf(by, { from, to })
  const asked = distinct(periods.flatMap((period) => [period, before(period)]))
  const read = await database.query<Read>(selectFigures, [
    ...[asked.map((period) => period.from), asked.map((period) => period.to)],
    ...[by, organizationIds, organization, account],
  ])
  const completeFrom = minOf(read.map(({ firstDay }) => firstDay))
  const rowsOf = by === 'source' ? [] : periods.flatMap((period) => rowsIn(by, period, asked, read))
  const report = { from, to, completeFrom, rows: rowsOf }
  if (by !== 'source') return report
  const sources = await readSources(database, organizationIds, query, asked)
  return {
    ...report,
    rows: sources.concat(withoutSource(rowsIn('total', { from, to }, asked, read), sources)),
  }
}

/** The days of one row each. A week or month at an end of the period may be incomplete. */
function periodsOf(by: Grouping, { from, to }: Period): Period[] {
  if (by !== 'day' && by !== 'week' && by !== 'month') return [{ from, to }]
  const keyOf = KEYS[by]
  const periods = new Map<string, Period>()
  for (let day = from; day <= to; day = plusDays(day, 1))
    periods.set(keyOf(day), { from: periods.get(keyOf(day))?.from ?? day, to: day })
  return [...periods.values()]
}

const KEYS = {
  day: (day: string) => day,
  week: (day: string) => plusDays(day, -((new Date(day).getUTCDay() + 6) % 7)),
  month: (day: string) => day.slice(0, 'YYYY-MM'.length),
}

/** The rows of a period: one, or one for each organization or account, most new followers first. */
function rowsIn(by: Grouping, period: Period, asked: Period[], read: Read[]): ReportRow[] {
  const indexOf = ({ from, to }: Period) =>
    1 + asked.findIndex((each) => each.from === from && each.to === to)
  const [current, earlier] = [indexOf(period), indexOf(before(period))]
  const previous = new Map(read.filter((each) => each.period === earlier).map((each) => [each.id, each]))
  const rows = read
    .filter((each) => each.period === current)
    .map((each): ReportRow => {
      const { id, name, firstDay } = each
      const isComplete = firstDay !== null && firstDay <= before(period).from
      const found = previous.get(id)
      return {
        ...keyOfRow(by, period, id, name),
        ...figuresOf(each),
        previous: isComplete && found ? figuresOf(found) : null,
      }
    })
  if (rows.length > 0 || by === 'account' || by === 'organization') return rows.sort(byNewFollowers)
  return [{ ...keyOfRow(by, period, null, null), ...NONE, previous: null }]
}

function keyOfRow(
  by: Grouping,
  { from }: Period,
  id: bigint | null,
  name: string | null,
): Partial<ReportRow> {
  if (by === 'day' || by === 'week' || by === 'month') return { [by]: KEYS[by](from) }
  if (id === null || name === null) return {}
  return by === 'account'
    ? { accountId: id as AccountId, name }
    : { organizationId: id as OrganizationId, name }
}

const byNewFollowers = (a: ReportRow, b: ReportRow) =>
  (b.newFollowers ?? -1) - (a.newFollowers ?? -1) || (a.name ?? '').localeCompare(b.name ?? '')

async function readSources(
  database: Queryable,
  organizationIds: OrganizationIds,
  { organization, account }: ReportQuery,
  asked: Period[],
): Promise<ReportRow[]> {
  const read = await database.query<Figures & { period: number; source: string }>(selectSources, [
    ...[asked.map(({ from }) => from), asked.map(({ to }) => to)],
    ...[organizationIds, organization, account, 2 * SOURCES_MAX],
  ])
  const previous = new Map(read.filter(({ period }) => period === 2).map((each) => [each.source, each]))
  return read
    .filter(({ period }) => period === 1)
    .slice(0, SOURCES_MAX)
    .map((each): ReportRow => {
      const found = previous.get(each.source)
      return { source: each.source, ...figuresOf(each), previous: found ? figuresOf(found) : null }
    })
}

/** What is left of the totals. */
function withoutSource([total]: ReportRow[], sources: ReportRow[]): ReportRow[] {
  if (total === undefined) return []
  const left = (from: Figures | null, named: Array<Figures | null>) =>
    from && {
      ...NONE,
      ...Object.fromEntries(
        (['newFollowers', 'returns', 'blocks', 'net', 'blockedWithin7Days'] as const).map((name) => {
          const whole = from[name]
          return [name, whole && named.reduce((rest, each) => rest - (each?.[name] ?? 0), whole)]
        }),
      ),
    }
  const { previous } = total
  return [
    {
      source: null,
      ...(left(total, sources) ?? NONE),
      previous: left(
        previous,
        sources.map((each) => each.previous),
      ),
    },
  ]
}

function checkQuery(query: ReportQuery): ReportQuery {
  for (const name of ['from', 'to'] as const)
    if (!isDay(query[name])) refuseInput(name, 'must be a day such as 2026-11-01')
  if (query.from > query.to) refuseInput('to', 'must not be before the first day')
  if (daysIn(query) > DAYS_MAX) refuseInput('from', `must be at most ${DAYS_MAX} days before the last day`)
  return query
}

const isDay = (text: string) =>
  /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) && plusDays(text, 0) === text
const daysIn = ({ from, to }: Period) => (Date.parse(to) - Date.parse(from)) / DAY_MS + 1
const plusDays = (day: string, days: number) =>
  new Date(Date.parse(day) + days * DAY_MS).toISOString().slice(0, 'YYYY-MM-DD'.length)

/** The same number of days directly before. */
const before = (period: Period): Period => ({
  from: plusDays(period.from, -daysIn(period)),
  to: plusDays(period.from, -1),
})

const distinct = (periods: Period[]) => [
  ...new Map(periods.map((each) => [`${each.from} ${each.to}`, each])).values(),
]

const minOf = (days: Array<string | null>) =>
  days.reduce((min, day) => (min === null || (day !== null && day < min) ? day : min), null)
