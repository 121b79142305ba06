/** The weekly summary of a channel: on Mondays at nine by its clock. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import { INT64_MAX, INT64_MIN } from '../../http/path-id.ts'
import { ACCOUNT_STATUSES } from '../../operator/accounts/account-status.ts'
import { isTimeZone, nextMinuteOfDay } from '../../operator/notifications/quiet-hours.ts'
import { type Queryable, type Row, statement, type Transactions } from '../../postgres/statement.ts'
import { lockAccounts } from './alert-rows.ts'
import { insertMessages, storeAccounts } from './message-rows.ts'
import { type Picture, totalOf } from './picture.ts'
import type { Sighting } from './transitions.ts'

const NINE_OCLOCK_MINUTES = 9 * 60
const MONDAY = 'Mon'
const DAY_MS = 24 * 3_600_000
const WEEK_MS = 7 * DAY_MS
/** A summary that is later than this, because the service was stopped or the channel paused, is left out. */
const LATE_MAX_MS = DAY_MS
/** Accounts with a problem that a summary lists, worst first. */
export const LISTED_MAX = 100
/** Accounts per statement. Each has up to 336 hours × 3 sources of counts, so a statement takes some 100 ms. */
const ACCOUNTS_PER_STATEMENT = 500

const selectChannels = statement('select-channels-with-summary')`
    select id, organization_id as "organizationId", time_zone as "timeZone",
           extract(epoch from summary_due_at)::float8 * 1000 as "dueAt"
      from notification_channel
     where status = 'active' and weekly_summary and (summary_due_at is null or summary_due_at <= now())
     order by id`

interface DueChannel extends Row {
  id: bigint
  organizationId: OrganizationId | null
  timeZone: string
  /** null: not planned yet */
  dueAt: number | null
}

/** Stores the summaries that are due, and plans the next ones. */
export async function storeSummaries(database: Transactions, picture: Picture, now: number): Promise<void> {
  const figures = new Map<OrganizationId | null, Figures>()
  for (const channel of await database.query<DueChannel>(selectChannels)) {
    const { organizationId, dueAt } = channel
    const isSent = dueAt !== null && dueAt > now - LATE_MAX_MS
    if (isSent && !figures.has(organizationId))
      figures.set(organizationId, await readFigures(database, organizationId))
    await storeSummary(database, channel, picture, (isSent && figures.get(organizationId)) || null, now)
  }
}

/** $1 channel id bigint; $2 float8. Returns no row if another process was faster. The channel stays until the transaction ends. */
const planNext = statement('plan-notification-summary')`
    update notification_channel set summary_due_at = to_timestamp($2::float8 / 1000)
     where id = $1 and status = 'active' and weekly_summary and (summary_due_at is null or summary_due_at <= now())
    returning id`

/** @param figures null: the summary is only planned */
function storeSummary(
  database: Transactions,
  { id: channelId, organizationId, timeZone }: DueChannel,
  picture: Picture,
  figures: Figures | null,
  now: number,
): Promise<void> {
  return database.transaction(async (transaction) => {
    const planned = await transaction.query(planNext, [channelId, nextSummary(timeZone, now)])
    const counts = picture.countsOf(organizationId)
    const accounts = totalOf(counts)
    if (planned.length === 0 || figures === null || accounts === 0) return
    const period = { from: new Date(now - WEEK_MS).toISOString(), until: new Date(now).toISOString() }
    const facts = { ...period, accounts, ...counts, ...figures }
    const row = { channelId, kind: 'summary', reason: null, severity: null, facts, dueAt: null }
    const [messageId] = await insertMessages(transaction, [row])
    const worst = worstOf(picture.problemsOf(organizationId))
    const present = await lockAccounts(
      transaction,
      worst.map(({ id }) => id),
    )
    await storeAccounts(
      transaction,
      worst
        .filter(({ id }) => present.has(id))
        .map(({ id, status, problem }) => ({
          ...{ messageId: messageId as bigint, id, before: status, after: status, problem, since: now },
        })),
    )
  })
}

const worstOf = (sightings: Sighting[]): Sighting[] =>
  sightings
    .sort((a, b) => ACCOUNT_STATUSES.indexOf(b.status) - ACCOUNT_STATUSES.indexOf(a.status))
    .slice(0, LISTED_MAX)

/** The next Monday at nine by the clock of the zone. UTC if another program has stored a zone that does not exist. */
export function nextSummary(timeZone: string, now: number): number {
  const zone = isTimeZone(timeZone) ? timeZone : 'UTC'
  const weekday = new Intl.DateTimeFormat('en', { timeZone: zone, weekday: 'short' })
  let at = nextMinuteOfDay(zone, NINE_OCLOCK_MINUTES, now)
  while (weekday.format(at) !== MONDAY) at = nextMinuteOfDay(zone, NINE_OCLOCK_MINUTES, at)
  return at
}

/** Of seven days. */
interface Figures {
  events: number
  /** in the seven days before */
  eventsBefore: number
  /** followers; null: they are not counted yet */
  growth: number | null
}

/** $1 least account id bigint; $2 organization id bigint, null: all; $3 accounts int */
const sumFigures = statement('sum-week-of-accounts')`
    with a as materialized (
      select id from official_account where id >= $1 and ($2::bigint is null or organization_id = $2) order by id limit $3)
    select max(a.id) as "lastId", count(*)::int as accounts, sum(h.events)::float8 as events,
           sum(h.events_before)::float8 as "eventsBefore", sum(c.following - c.following_week_ago)::float8 as growth
      from a
     cross join lateral (
       select coalesce(sum(accepted) filter (where hour >= now() - interval '7 days'), 0) as events,
              coalesce(sum(accepted) filter (where hour < now() - interval '7 days'), 0) as events_before
         from delivery_hour where channel_oa_id = a.id and hour >= now() - interval '14 days') h
      left join account_check c on c.channel_oa_id = a.id`

interface FiguresRow extends Row {
  lastId: AccountId | null
  accounts: number
  events: number | null
  eventsBefore: number | null
  growth: number | null
}

async function readFigures(database: Queryable, organizationId: OrganizationId | null): Promise<Figures> {
  const total: Figures = { events: 0, eventsBefore: 0, growth: null }
  for (let leastId = INT64_MIN; ; ) {
    const [row] = await database.query<FiguresRow>(sumFigures, [
      leastId,
      organizationId,
      ACCOUNTS_PER_STATEMENT,
    ])
    total.events += row?.events ?? 0
    total.eventsBefore += row?.eventsBefore ?? 0
    if (row?.growth != null) total.growth = (total.growth ?? 0) + row.growth
    const lastId = row?.lastId ?? INT64_MAX
    if ((row?.accounts ?? 0) < ACCOUNTS_PER_STATEMENT || lastId === INT64_MAX) return total
    leastId = lastId + 1n
  }
}
