/** One row of facts for each official account. Planner idioms: docs/planner.md. */
import { FOREIGN_DESTINATION_AT, findNamedAccounts, REDELIVERY_OFF_AT } from '../accounts/account.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import type { AccountId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import type { FleetAccount } from './account-status.ts'

/** Other work of the process runs between two pages. */
const PAGE_SIZE = 500

/** SQL of the problems in a row of account_check */
export const problemsOf = (
  check: string,
) => `case when ${check}.muted_until > now() then jsonb_set(${check}.problems, '{0,muted}',
                     jsonb_build_object('until', iso(${check}.muted_until), 'reason', ${check}.mute_reason))
                else coalesce(${check}.problems, '[]') end`

/**
 * The account monitor stores the probability of a silence and the counts of past hours. If no instance has run it for twice its interval,
 * both are computed here. An account that is being removed has no status: its credentials are deleted.
 *
 * $1 least account id bigint; $2 accounts int; $3 organization ids bigint[], null: all
 */
const selectFleet = statement('select-fleet')`
    with counted as materialized (select counted_per_endpoint() as max)
    select a.id, a.organization_id as "organizationId", o.name as "organizationName", a.name, a.basic_id as "basicId",
           iso(a.created_at) as "addedAt",
           coalesce(a.channel_id, '') <> '' as "hasChannelId", coalesce(a.channel_secret, '') ~ '\\S' as "hasChannelSecret",
           can_call_platform(a) as "canCallPlatform", coalesce(a.suspended, false) as "isSuspended",
           iso(${FOREIGN_DESTINATION_AT}) as "foreignDestinationAt",
           a.foreign_destination as "foreignDestination",
           case when a.module_attached = false and coalesce(last.last_at, '-infinity') < a.module_at + interval '5 minutes'
                then iso(a.module_at) end as "moduleDetachedAt",
           iso(${REDELIVERY_OFF_AT}) as "redeliveryOffAt",
           -- The time of the test is that of the verification, which may take 8 s. Counts are stored every ten seconds.
           case when a.webhook_test_failure is null and a.webhook_tested_at < now() - interval '30 seconds'
                 and coalesce(last.last_at, '-infinity') < a.webhook_tested_at - interval '10 seconds'
                then iso(a.webhook_tested_at) end as "answeredElsewhereAt",
           (select b.id from official_account b
             where b.organization_id = a.organization_id and b.bot_user_id = a.bot_user_id and b.id <> a.id limit 1) as "duplicateId",
           iso(last.last_at) as "lastDeliveryAt",
           case when a.channel_secret_changed_at < last.last_at then null else iso(a.channel_secret_changed_at) end as "unprovenSecretAt",
           case when last.last_at >= date_trunc('hour', now()) - interval '1 hour' then null
                when figures.are_fresh and c.silent_since = last.last_at then c.silence_chance
                else silence_chance(a.id, last.last_at) end as "silenceChance",
           (coalesce(hours.deliveries, 0) + case when figures.are_fresh then c.deliveries_before else 0 end)::float8 as "deliveries24h",
           (coalesce(hours.events, 0) + case when figures.are_fresh then c.events_before else 0 end)::float8 as "events24h",
           (coalesce(hours.failed, 0) + case when figures.are_fresh then c.failed_before else 0 end)::float8 as "failed24h",
           coalesce(refused.count, 0)::float8 as refused, iso(refused.last_at) as "lastRefusedAt",
           coalesce(refused.sources, '{}') as "refusedSources", unapplied.count as unapplied,
           iso(a.verified_at) as "verifiedAt", (a.verification->>'verified')::boolean as verified,
           case when (a.verification->>'verified')::boolean then '[]'
                else coalesce(jsonb_path_query_array(a.verification, '$.checks[*] ? (@.ok == false).name'), '[]') end as "failedChecks",
           jsonb_path_query_first(a.verification, '$.checks[*] ? (@.ok == false)') as "firstFailure",
           case when a.webhook_tested_at < last.last_at
                  or a.webhook_tested_at < a.channel_secret_changed_at
                 and a.webhook_test_failure->>'reason' = 'test_signature_refused' then null
                else a.webhook_test_failure end as "testFailure",
           iso(c.checked_at) as "checkedAt", c.fault, iso(c.token_expires_at) as "tokenExpiresAt",
           c.quota_limit::float8 as "quotaLimit", c.quota_used::float8 as "quotaUsed", c.members::float8 as members,
           c.following::float8 as following, c.blocked::float8 as blocked, c.profiles_due::float8 as "profilesDue",
           iso(c.counted_at) as "countedAt", (c.following - c.following_week_ago)::float8 as "growth7d",
           c.missing_day::text as "missingDay", c.missing::float8 as missing,
           endpoints.pending as "endpointsPending", endpoints.failed as "endpointsFailed",
           endpoints.failing_id as "failingEndpointId", coalesce(c.status, 'quiet') as status, ${problemsOf('c')} as problems
      from official_account a
      -- "offset 0" keeps these joins from reading all accounts for each page.
     cross join lateral (select name from organization where id = a.organization_id offset 0) o
      left join lateral (select * from account_check where channel_oa_id = a.id offset 0) c on true
      -- LINE's newest delivery.
      left join lateral (
        select h.last_at from delivery_hour h
         where h.channel_oa_id = a.id and h.source = 'line' and h.last_at is not null
         order by h.hour desc limit 1) last on true
      cross join lateral (select coalesce(c.judged_at > now() - interval '20 minutes', false) as are_fresh) figures
      left join lateral (
        select sum(h.deliveries) as deliveries, sum(h.accepted) as events, sum(h.failed) as failed
          from delivery_hour h
         where h.channel_oa_id = a.id
           and h.hour >= date_trunc('hour', case when figures.are_fresh then c.judged_at
                                                 else now() - interval '23 hours' end)) hours on true
      -- Wrong signatures of a week. A source is listed if nothing valid came from it since, and its secret is still the one that refused.
      left join lateral (
        select sum(r.count) as count, max(r.last_at) as last_at,
               array_agg(r.source) filter (where r.last_at > coalesce(
                 (select h.last_at from delivery_hour h
                   where h.channel_oa_id = a.id and h.source = r.source and h.last_at is not null
                   order by h.hour desc limit 1), '-infinity')
                 and (r.source = 'line' and r.last_at < a.channel_secret_changed_at) is not true) as sources
          from (select h.source, sum(h.refused) as count, max(h.last_refused_at) as last_at
                  from delivery_hour h
                 where h.channel_oa_id = a.id and h.refused > 0 and h.source <> 'id_token' and h.hour > now() - interval '7 days'
                 group by h.source) r) refused on true
      cross join lateral (
        select count(*)::int as count
          from (select from event e where e.channel_oa_id = a.id and e.failure is not null and e.set_aside is null limit 10000) e) unapplied
      left join lateral (
        select coalesce(sum(pending.count), 0)::int as pending, coalesce(sum(failed.count), 0)::int as failed,
               min(p.id) filter (where p.status = 'active' and pending.count > 0
                                   and x.answered_at is not null and coalesce(x.status, 0) not between 200 and 299) as failing_id
          from endpoint p
          left join endpoint_answer x on x.endpoint_id = p.id
         cross join lateral (
           select count(*) from (select from endpoint_delivery d
                                  where d.endpoint_id = p.id and d.failed_at is null limit (select max from counted)) d) pending
         cross join lateral (
           -- The order keeps PostgreSQL from the index of creation times, which has the failed deliveries of all endpoints.
           select count(*) from (select from endpoint_delivery d
                                  where d.endpoint_id = p.id and d.failed_at is not null order by d.id limit (select max from counted)) d) failed
         where p.channel_oa_id = a.id) endpoints on true
     -- As an array, PostgreSQL expects as many ids in every plan, and so plans once for one account and for a page.
     where a.id = any (array(select id from official_account
                               where id >= $1 and visible(organization_id, $3)
                                 and is_being_removed is not true
                               order by id limit $2))
     order by a.id`

export async function* readFleet(
  database: Queryable,
  organizationIds: OrganizationIds,
): AsyncGenerator<FleetAccount[]> {
  for (let leastId = INT64_MIN; ; ) {
    const page = await readPage(database, organizationIds, leastId, PAGE_SIZE)
    if (page.length > 0) yield page
    const lastId = page.at(-1)?.id
    if (page.length < PAGE_SIZE || lastId === undefined || lastId === INT64_MAX) return
    leastId = lastId + 1n
  }
}

export async function findFleetAccount(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: AccountId,
): Promise<FleetAccount | null> {
  const [facts] = await readPage(database, organizationIds, id, 1)
  return facts?.id === id ? facts : null
}

async function readPage(
  database: Queryable,
  organizationIds: OrganizationIds,
  leastId: AccountId,
  count: number,
): Promise<FleetAccount[]> {
  const rows = await database.query<FleetAccount & Row>(selectFleet, [leastId, count, organizationIds])
  await forgetNamed(database, rows)
  return rows
}

/** Forgets foreign deliveries whose bot has an account by now, which receives later ones. */
async function forgetNamed(database: Queryable, rows: FleetAccount[]): Promise<void> {
  const foreign = rows.filter(({ foreignDestinationAt }) => foreignDestinationAt !== null)
  if (foreign.length === 0) return
  const named = await findNamedAccounts(
    database,
    foreign.map((row) => ({ pathAccountId: row.id, destination: row.foreignDestination ?? '' })),
  )
  for (const [index, row] of foreign.entries()) {
    if (named[index]?.accountId !== row.id) row.foreignDestinationAt = null
  }
}
