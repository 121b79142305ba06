/** What operators see of all official accounts: one row of facts for each, in one statement. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import type { Check } from '../accounts/verification.ts'
import { LINE_TODAY } from '../line-day.ts'
import type { Queryable, Row, Statement } from '../postgres/statement.ts'

/** Hours of deliveries in a row of the fleet, and days of followers. */
export const FLEET_HOURS = 24
export const FLEET_DAYS = 30

/** What is known of one account. Times are ISO 8601 in UTC. */
export interface AccountFacts {
  id: AccountId
  organizationId: OrganizationId
  organizationName: string
  name: string
  basicId: string | null
  addedAt: string
  hasChannelId: boolean
  hasChannelSecret: boolean
  /** an access token is stored, or the channel id and secret with which one can be issued */
  canCallPlatform: boolean
  isSuspended: boolean
  /** the newest delivery of a week that named another bot; null: none */
  foreignDestinationAt: string | null

  /** LINE's newest delivery in 35 days */
  lastDeliveryAt: string | null
  /** the chance of a silence as long as the present one, by the account's own last four weeks; null: no silence to judge */
  silenceChance: number | null
  deliveries24h: number
  events24h: number
  failed24h: number
  /** with a wrong signature, in a week */
  refused: number
  lastRefusedAt: string | null
  /** sources whose newest delivery had a wrong signature */
  refusedSources: string[]
  unapplied: number

  verifiedAt: string | null
  verified: boolean | null
  /** the names of the checks that failed */
  failedChecks: Array<Check['name']>
  /** what the first of them says, with LINE's own words if LINE refused a call; null: none failed */
  firstFailure: string | null
  /** when the platform was asked last, and why it did not answer */
  checkedAt: string | null
  fault: string | null
  tokenExpiresAt: string | null
  quotaLimit: number | null
  quotaUsed: number | null

  members: number | null
  following: number | null
  blocked: number | null
  profilesDue: number | null
  countedAt: string | null
  /** how many more people follow than a week ago */
  growth7d: number | null
  /** the newest day of a week on which LINE counted more changes than were delivered */
  missingDay: string | null
  missing: number | null

  endpointsPending: number
  endpointsFailed: number
  /** the lowest id of an active endpoint that does not accept what is sent; null: none */
  failingEndpointId: bigint | null

  /** LINE's deliveries of the last FLEET_HOURS hours, oldest first; the last one is the present hour */
  hours: number[]
  /** people who followed, of the last FLEET_DAYS days, oldest first; null: not counted on that day */
  days: Array<number | null>
}

/**
 * The chance of a silence is the product over its whole hours, at most three days of them. An hour in which the account had
 * deliveries in b of w weeks before stays empty with the chance (w - b + 1) / (w + 2), by Laplace's rule of succession. An hour in
 * which it never had any says nothing. An account that was never delivered to for a whole week has no rhythm yet.
 *
 * A gap compares LINE's statistics with the events of the same day. LINE's number of followers never decreases, so its increase is
 * the people who followed for the first time, and the increase of blocks is those who left without those who came back. The sum of
 * all changes is compared as well, because LINE's mark of a return is not always right. Up to 10 people, or a tenth, are tolerated.
 *
 * $1 account id bigint, null: all accounts
 */
const selectFleet: Statement = {
  name: 'select-fleet',
  text: `
    select a.id, a.organization_id as "organizationId", o.name as "organizationName", a.name, a.basic_id as "basicId",
           a.created_at as "addedAt",
           coalesce(a.channel_id, '') <> '' as "hasChannelId",
           coalesce(a.channel_secret, '') ~ '\\S' as "hasChannelSecret",
           can_call_platform(a) as "canCallPlatform",
           coalesce(a.suspended, false) as "isSuspended",
           -- Another account with this bot may have been added since. It receives them now.
           case when a.foreign_destination <> a.bot_user_id and a.foreign_destination_at > now() - interval '7 days'
                 and account_of_destination(a.id, a.foreign_destination) = a.id
                then a.foreign_destination_at end as "foreignDestinationAt",
           last.last_at as "lastDeliveryAt",
           silence.chance as "silenceChance",
           coalesce(day.deliveries, 0)::float8 as "deliveries24h", coalesce(day.events, 0)::float8 as "events24h",
           coalesce(day.failed, 0)::float8 as "failed24h", day.line_hours, day.line_deliveries,
           coalesce(refused.count, 0)::float8 as refused, refused.last_at as "lastRefusedAt",
           coalesce(refused.sources, '{}') as "refusedSources",
           unapplied.count as unapplied,
           a.verified_at as "verifiedAt", (a.verification->>'verified')::boolean as verified,
           case when (a.verification->>'verified')::boolean then '[]'
                else jsonb_path_query_array(a.verification, '$.checks[*] ? (@.ok == false).name') end as "failedChecks",
           jsonb_path_query_first(a.verification, '$.checks[*] ? (@.ok == false).message') #>> '{}' as "firstFailure",
           c.checked_at as "checkedAt", c.fault, c.token_expires_at as "tokenExpiresAt",
           c.quota_limit::float8 as "quotaLimit", c.quota_used::float8 as "quotaUsed",
           c.members::float8 as members, c.following::float8 as following, c.blocked::float8 as blocked,
           c.profiles_due::float8 as "profilesDue", c.counted_at as "countedAt",
           (c.following - followers.week_ago)::float8 as "growth7d", followers.ages, followers.followings,
           gap.day::text as "missingDay", gap.missing::float8 as missing,
           endpoints.pending as "endpointsPending", endpoints.failed as "endpointsFailed",
           endpoints.failing_id as "failingEndpointId"
      from official_account a
      join organization o on o.id = a.organization_id
      left join account_check c on c.channel_oa_id = a.id
      -- LINE's newest delivery.
      left join lateral (
        select h.last_at from delivery_hour h
         where h.channel_oa_id = a.id and h.source = 'line' and h.last_at is not null
         order by h.hour desc limit 1) last on true
      -- Counts of 24 hours, by hour for LINE.
      left join lateral (
        select sum(h.deliveries) as deliveries, sum(h.accepted) as events, sum(h.failed) as failed,
               array_agg(extract(epoch from date_trunc('hour', now()) - h.hour)::int / 3600)
                 filter (where h.source = 'line') as line_hours,
               array_agg(h.deliveries::float8) filter (where h.source = 'line') as line_deliveries
          from delivery_hour h
         where h.channel_oa_id = a.id and h.hour > date_trunc('hour', now()) - interval '24 hours') day on true
      -- Wrong signatures of a week. A source is listed if nothing valid came from it since.
      left join lateral (
        select sum(r.count) as count, max(r.last_at) as last_at,
               array_agg(r.source) filter (where r.last_at > coalesce(
                 (select h.last_at from delivery_hour h
                   where h.channel_oa_id = a.id and h.source = r.source and h.last_at is not null
                   order by h.hour desc limit 1), '-infinity')) as sources
          from (select h.source, sum(h.refused) as count, max(h.last_refused_at) as last_at
                  from delivery_hour h
                 where h.channel_oa_id = a.id and h.refused > 0 and h.hour > now() - interval '7 days'
                 group by h.source) r) refused on true
      cross join lateral (
        select count(*)::int as count
          from (select from event e where e.channel_oa_id = a.id and e.failure is not null limit 10000) e) unapplied
      -- The hours of the present silence in the weeks before it.
      left join lateral (
        select exp(sum(ln((weeks - least(busy, weeks) + 1) / (weeks + 2.0)::float8))) as chance
          from (select count(*) as busy
                  from generate_series(1, 4) as week
                  join delivery_hour h
                    on h.channel_oa_id = a.id and h.source = 'line' and h.deliveries > 0
                   and h.hour > date_trunc('hour', last.last_at) - week * interval '7 days'
                   and h.hour < least(date_trunc('hour', now()), date_trunc('hour', last.last_at) + interval '73 hours')
                                - week * interval '7 days'
                 where last.last_at < date_trunc('hour', now()) - interval '1 hour'
                 group by h.hour + week * interval '7 days') slot
         cross join (select least(4, extract(epoch from last.last_at - min(h.hour))::int / 604800) as weeks
                       from delivery_hour h where h.channel_oa_id = a.id) history
         where weeks >= 1) silence on true
      left join lateral (
        select array_agg(${LINE_TODAY} - d.day) as ages,
               array_agg(d.following::float8) as followings,
               (array_agg(d.following order by d.day desc)
                 filter (where d.day <= ${LINE_TODAY} - 7))[1] as week_ago
          from account_day d
         where d.channel_oa_id = a.id and d.following is not null
           and d.day > ${LINE_TODAY} - 30) followers on true
      left join lateral (
        select g.day, g.missing
          from (select d.day, d.line_followers - p.line_followers as new_followers,
                       greatest(d.line_followers - p.line_followers - d.first_follows,
                                abs(d.line_followers - p.line_followers - (d.line_blocks - p.line_blocks)
                                    - (d.first_follows + d.returns - d.unfollows))) as missing,
                       d.first_follows + d.returns + d.unfollows as delivered
                  from account_day d
                  join account_day p on p.channel_oa_id = d.channel_oa_id and p.day = d.day - 1
                 where d.channel_oa_id = a.id and d.day > (now() at time zone 'UTC')::date - 8
                   and d.first_follows is not null and d.line_followers is not null and p.line_followers is not null) g
         where g.missing > greatest(10, 0.1 * greatest(g.new_followers, g.delivered))
         order by g.day desc limit 1) gap on true
      left join lateral (
        select coalesce(sum(pending.count), 0)::int as pending, coalesce(sum(failed.count), 0)::int as failed,
               min(p.id) filter (where p.status = 'active' and pending.count > 0
                                   and x.endpoint_id is not null and coalesce(x.status, 0) not between 200 and 299) as failing_id
          from endpoint p
          left join endpoint_answer x on x.endpoint_id = p.id
         cross join lateral (
           select count(*) from (select from endpoint_delivery d
                                  where d.endpoint_id = p.id and d.failed_at is null limit 10000) d) pending
         cross join lateral (
           select count(*) from (select from endpoint_delivery d
                                  where d.endpoint_id = p.id and d.failed_at is not null limit 10000) d) failed
         where p.channel_oa_id = a.id) endpoints on true
     where $1::bigint is null or a.id = $1
     order by a.id`,
}

/** All accounts, in the order of their ids. */
export async function readFleet(database: Queryable): Promise<AccountFacts[]> {
  const rows = await database.query<FleetRow>(selectFleet, [null])
  return rows.map(factsOf)
}

/** Null if the account does not exist. */
export async function readAccountFacts(database: Queryable, id: AccountId): Promise<AccountFacts | null> {
  const [row] = await database.query<FleetRow>(selectFleet, [id])
  return row === undefined ? null : factsOf(row)
}

type FleetRow = Row &
  Omit<AccountFacts, 'hours' | 'days'> & {
    /** ages in hours, and what was delivered in them */
    line_hours: number[] | null
    line_deliveries: number[] | null
    /** ages in days, and how many people followed */
    ages: number[] | null
    followings: number[] | null
  }

const TIMES = [
  ...['foreignDestinationAt', 'lastDeliveryAt', 'lastRefusedAt', 'verifiedAt', 'checkedAt', 'tokenExpiresAt'],
  ...['countedAt', 'addedAt'],
] as const

function factsOf({ line_hours, line_deliveries, ages, followings, ...row }: FleetRow): AccountFacts {
  const times = TIMES.map((name) => [name, isoTime(row[name] as string | null)])
  return {
    ...row,
    ...Object.fromEntries(times),
    failedChecks: row.failedChecks ?? [],
    hours: spread(FLEET_HOURS, 0, line_hours, line_deliveries),
    days: spread<number | null>(FLEET_DAYS, null, ages, followings),
  }
}

/** PostgreSQL writes a time as `2026-11-22 09:00:00.123456+00`. Null for `infinity`, which another program may have stored. */
function isoTime(text: string | null): string | null {
  const ms = Date.parse(text ?? '')
  return Number.isNaN(ms) ? null : new Date(ms).toISOString()
}

/** Places values by their age in a list that ends with the present one. */
function spread<T>(length: number, nothing: T, ages: number[] | null, values: T[] | null): T[] {
  const list = Array<T>(length).fill(nothing)
  for (const [index, age] of (ages ?? []).entries()) list[length - 1 - age] = (values as T[])[index] as T
  return list
}
