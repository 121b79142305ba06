/** The report of followers, read from the days that account-days.ts counts. docs/report.md defines each figure. */
import { findOrganizationContents } from '../accounts/organizations.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { refuseInput } from '../http/validate.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { DAY_MS, LINE_TODAY, mondayOf, type Period, plusDays } from '../line-api/line-day.ts'
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

/** Accounts that one statement reads, so that it ends long before its time limit: a source is read since it was first counted. */
const ACCOUNTS_PER_STATEMENT = { figures: 2_000, sources: 500 }

/** Whose figures are read, in the order of the statements' parameters. */
type Accounts = [
  organizationIds: OrganizationIds,
  organization: OrganizationId | null,
  account: AccountId | null,
]

/** `lastId` is that of the last account that the statement has read. */
type Part = Figures & { lastId: bigint; firstDay?: string | null }

type Read = Part & { bucket: string | null; id: bigint | null; name: string | null; firstDay: string | null }

const FLOWS = `
           sum(d.first_follows)::float8 as "newFollowers", sum(d.returns)::float8 as returns, sum(d.unfollows)::float8 as blocks,
           (sum(d.first_follows) + sum(d.returns) - sum(d.unfollows))::float8 as net`

/**
 * Figures of two periods, one after the other, by account, by organization or of all together; or of each day of both. Levels are those of the
 * last day; the followers of today are those that were counted last. Days that an older release counted lack blocked_within_7_days, so that a
 * sum would not be that of the whole period.
 *
 * $1 first day of the first period date; $2 first day of the second one date; $3 last day date; $4 'account', 'organization', 'day' or another
 * text; $5 organization ids bigint[], null: all; $6 organization bigint or null; $7 account bigint or null; $8 after this account bigint;
 * $9 accounts int
 */
const selectFigures = statement('select-report')`
    with account as materialized (
      select a.id, case $4 when 'account' then a.id when 'organization' then a.organization_id end as key,
             case $4 when 'account' then a.name when 'organization' then o.name end as name, c.following, first.day as first_day
        from official_account a
       cross join lateral (select name from organization where id = a.organization_id offset 0) o
        left join lateral (select following from account_check where channel_oa_id = a.id offset 0) c on true
        left join lateral (
          select day from account_day where channel_oa_id = a.id and first_follows is not null order by day limit 1) first on true
       where visible(a.organization_id, $5) and a.organization_id = coalesce($6, a.organization_id) and a.id = coalesce($7, a.id)
         and a.id > $8
       order by a.id limit $9
    )
    select (select max(id) from account) as "lastId", d.bucket::text, a.key as id, max(a.name) as name, min(a.first_day)::text as "firstDay", ${FLOWS},
           sum(d.line_new)::float8 as "lineNewFollowers",
           case when count(*) filter (where d.first_follows is not null and d.blocked_within_7_days is null) = 0
                then sum(d.blocked_within_7_days)::float8 end as "blockedWithin7Days",
           case when d.bucket = case $4 when 'day' then ${LINE_TODAY} else $2::date end and $3::date >= ${LINE_TODAY}
                then sum(a.following) filter (where d.is_newest)
                else sum(d.following) filter (where $4 = 'day' or d.day in ($3::date, $2::date - 1)) end::float8 as followers,
           sum(d.line_followers) filter (where $4 = 'day' or d.day in ($3::date, $2::date - 1))::float8 as "lineFollowers",
           sum(d.line_blocks) filter (where $4 = 'day' or d.day in ($3::date, $2::date - 1))::float8 as "lineBlocks"
      from account a
      left join lateral (
        select *
          from (select *, case when $4 = 'day' then day when day < $2::date then $1::date else $2::date end as bucket,
                       lead(day) over w is null as is_newest,
                       case when lag(day) over w = day - 1 then line_followers - lag(line_followers) over w end as line_new
                  from account_day
                 where channel_oa_id = a.id and day between $1::date - 1 and $3::date
                window w as (order by day)) each
         where day >= $1::date) d on true
     group by d.bucket, a.key`

/**
 * Figures of sources, those with most new followers first. A source's followers are those who came and did not leave since it was first counted.
 *
 * $1 first days date[]; $2 last days date[]; $3 organization ids bigint[], null: all; $4 organization bigint or null; $5 account bigint or null;
 * $6 after this account bigint; $7 accounts int; $8 rows int
 */
const selectSources = statement('select-report-of-sources')`
    with account as materialized (
      select id from official_account
       where visible(organization_id, $3) and organization_id = coalesce($4, organization_id) and id = coalesce($5, id) and id > $6
       order by id limit $7
    ), counted as (
      select s.*
        from account a
       cross join lateral (
         select p.number::int as period, d.source, sum(first_follows) filter (where day >= since) as first_follows,
                sum(returns) filter (where day >= since) as returns, sum(unfollows) filter (where day >= since) as unfollows,
                sum(blocked_within_7_days) filter (where day >= since) as blocked, sum(following) filter (where day >= since) as following,
                sum(active) filter (where day >= since) as active, sum(first_follows + returns - unfollows) as since_first
           from (select * from source_day where channel_oa_id = a.id offset 0) d
          cross join unnest($1::date[], $2::date[]) with ordinality as p (since, until, number)
          where d.day <= p.until
          group by p.number, d.source) s
    )
    select (select max(id) from account) as "lastId", d.period, d.source, ${FLOWS}, sum(d.blocked)::float8 as "blockedWithin7Days", sum(d.since_first)::float8 as followers,
           sum(d.following)::float8 as "stillFollowing", sum(d.active)::float8 as active
      from counted d
     where d.first_follows + d.returns + d.unfollows > 0
     group by d.period, d.source
     union all
    -- So that a part of the accounts without sources does not end the report.
    select max(id), 0, null, null, null, null, null, null, null, null, null from account having count(*) > 0
     order by 2, 4 desc, 3
     limit $8`

/** Throws `invalid_input`, and NotVisible for an organization that the operator does not see. */
export async function readReport(
  database: Queryable,
  organizationIds: OrganizationIds,
  query: ReportQuery,
): Promise<Report> {
  const { from, to, by, organization, account } = checkQuery(query)
  if (organization !== null) await findOrganizationContents(database, organizationIds, organization)
  const periods = periodsOf(by, { from, to })
  const isByTime = by === 'day' || by === 'week' || by === 'month'
  const firstDay = periods.map((period) => before(period).from).sort()[0]
  const accounts: Accounts = [organizationIds, organization, account]
  const values = [firstDay, from, to, isByTime ? 'day' : by, ...accounts]
  const read = await readAll<Read>(
    (after) => database.query(selectFigures, [...values, after, ACCOUNTS_PER_STATEMENT.figures]),
    ({ bucket, id }) => `${bucket} ${id}`,
  )
  const completeFrom = minOf(read.map((each) => each.firstDay))
  const report = { from, to, completeFrom }
  if (isByTime) return { ...report, rows: periods.map((period) => rowOfTime(by, period, read, completeFrom)) }
  const rows = rowsOfGroups(by, { from, to }, read)
  if (by !== 'source') return { ...report, rows }
  const sources = await readSources(database, accounts, { from, to })
  return { ...report, rows: sources.concat(withoutSource(rows, sources)) }
}

/** Reads the accounts in parts, and adds up the rows of all parts that have the same key. */
async function readAll<P extends Part>(
  readPart: (afterId: bigint) => Promise<P[]>,
  keyOf: (row: P) => string,
): Promise<P[]> {
  const rows = new Map<string, P>()
  for (let afterId: bigint | undefined = INT64_MIN; afterId !== undefined; ) {
    const part: P[] = await readPart(afterId)
    for (const row of part) {
      const other = rows.get(keyOf(row))
      rows.set(
        keyOf(row),
        other === undefined ? row : { ...row, ...sumOf([other, row]), firstDay: firstOf(other, row) },
      )
    }
    afterId = part[0]?.lastId
  }
  return [...rows.values()]
}

const firstOf = (...rows: Part[]) => minOf(rows.map(({ firstDay = null }) => firstDay))

/** Null and a number are the number. What is not known of a row, although its events were counted, is not known of the sum. */
function sumOf(rows: Figures[]): Figures {
  const isOld = rows.some((each) => each.newFollowers !== null && each.blockedWithin7Days === null)
  const sums = Object.keys(figuresOf(rows[0] ?? NONE)).map((name) => {
    const values = rows.flatMap((each) => each[name as keyof Figures] ?? [])
    return [name, values.length === 0 ? null : values.reduce((total, value) => total + value)]
  })
  return { ...(Object.fromEntries(sums) as Figures), ...(isOld && { blockedWithin7Days: null }) }
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
  week: mondayOf,
  month: (day: string) => day.slice(0, 'YYYY-MM'.length),
}

/** @param completeFrom the first counted day */
function rowOfTime(
  by: keyof typeof KEYS,
  period: Period,
  days: Read[],
  completeFrom: string | null,
): ReportRow {
  const earlier = before(period)
  const isComplete = completeFrom !== null && completeFrom <= earlier.from
  return {
    [by]: KEYS[by](period.from),
    ...figuresIn(period, days),
    previous: isComplete ? figuresIn(earlier, days) : null,
  }
}

/** Levels are those of the last day. */
function figuresIn({ from, to }: Period, days: Read[]): Figures {
  const within = days.filter(({ bucket }) => bucket !== null && bucket >= from && bucket <= to)
  const { followers, lineFollowers, lineBlocks } = within.find(({ bucket }) => bucket === to) ?? NONE
  return { ...sumOf(within), followers, lineFollowers, lineBlocks }
}

/** One row, or one for each organization or account, most new followers first. */
function rowsOfGroups(by: Grouping, period: Period, read: Read[]): ReportRow[] {
  const earlier = before(period)
  const bucketsOf = (from: string) =>
    new Map(read.filter(({ bucket }) => bucket === from).map((each) => [each.id, each]))
  const [current, previous] = [bucketsOf(period.from), bucketsOf(earlier.from)]
  const rows = [...new Map(read.map((each) => [each.id, each])).values()].map(
    ({ id, name, firstDay }): ReportRow => ({
      ...(by === 'account' && id !== null && { accountId: id as AccountId, name: name ?? '' }),
      ...(by === 'organization' && id !== null && { organizationId: id as OrganizationId, name: name ?? '' }),
      ...figuresOf(current.get(id) ?? NONE),
      previous: firstDay !== null && firstDay <= earlier.from ? figuresOf(previous.get(id) ?? NONE) : null,
    }),
  )
  if (rows.length === 0 && by !== 'account' && by !== 'organization') return [{ ...NONE, previous: null }]
  return rows.sort(byNewFollowers)
}

const byNewFollowers = (a: ReportRow, b: ReportRow) =>
  (b.newFollowers ?? -1) - (a.newFollowers ?? -1) ||
  (a.name ?? a.source ?? '').localeCompare(b.name ?? b.source ?? '')

async function readSources(database: Queryable, accounts: Accounts, period: Period): Promise<ReportRow[]> {
  const earlier = before(period)
  const days = [
    [period.from, earlier.from],
    [period.to, earlier.to],
  ]
  const read = await readAll<Part & { period: number; source: string | null }>(
    (after) =>
      database.query(selectSources, [
        ...[...days, ...accounts, after, ACCOUNTS_PER_STATEMENT.sources],
        2 * SOURCES_MAX + 1,
      ]),
    (row) => `${row.period} ${row.source}`,
  )
  const previous = new Map(read.filter((each) => each.period === 2).map((each) => [each.source, each]))
  return read
    .filter((each) => each.period === 1)
    .map((each): ReportRow => {
      const found = previous.get(each.source)
      return { source: each.source, ...figuresOf(each), previous: found ? figuresOf(found) : null }
    })
    .sort(byNewFollowers)
    .slice(0, SOURCES_MAX)
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

/** The same number of days directly before. */
const before = (period: Period): Period => ({
  from: plusDays(period.from, -daysIn(period)),
  to: plusDays(period.from, -1),
})

const minOf = (days: Array<string | null>) => days.filter((day) => day !== null).sort()[0] ?? null
