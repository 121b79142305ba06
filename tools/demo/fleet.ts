/**
 * A fleet for the console: fictitious accounts with a history of four weeks, one or more in each state. They are written into the
 * demo's own database, because a history cannot be delivered afterwards.
 */
import { randomBytes } from 'node:crypto'
import { addAccount, addOrganization } from '../../src/accounts/provisioning.ts'
import type { Check } from '../../src/accounts/verification.ts'
import { addEndpoint } from '../../src/endpoints/settings.ts'
import { type Queryable, statement, type Transactions } from '../../src/postgres/statement.ts'
import { confirmStatuses } from '../../src/watch/store-statuses.ts'
import { randomUserId } from '../simulator/events.ts'
import type { SimulatedPlatform } from '../simulator/platform.ts'
import { randomAccount, type SimulatedAccount } from '../simulator/state.ts'
import { addNotifications } from './notifications.ts'
import { addStory } from './story.ts'

const ORGANIZATION = 'Demo fleet'

interface FleetMember {
  name: string
  /** at noon */
  deliveriesPerHour: number
  people: number
  /** hours since the last delivery */
  silentHours?: number
  failedCheck?: Check['name']
  hasNoSecret?: boolean
  unapplied?: number
  refused?: number
  tokenExpiresInDays?: number
  quotaUsed?: number
  failedDeliveries?: number
}

const FLEET: FleetMember[] = [
  { name: 'Sakura Pharmacy さくら薬局', deliveriesPerHour: 300, people: 420, quotaUsed: 1_840 },
  { name: 'ร้านกาแฟดอยช้าง', deliveriesPerHour: 550, people: 640, quotaUsed: 3_120 },
  { name: 'Osaka Sushi', deliveriesPerHour: 175, people: 280, quotaUsed: 610 },
  { name: 'Hotel Aurora', deliveriesPerHour: 200, people: 190, silentHours: 31 },
  { name: 'Siam Dental', deliveriesPerHour: 125, people: 150, failedCheck: 'webhook_active', silentHours: 9 },
  { name: 'Momo Books', deliveriesPerHour: 60, people: 90, failedCheck: 'access_token' },
  { name: 'Lotus Spa', deliveriesPerHour: 40, people: 60, hasNoSecret: true, silentHours: 60, refused: 48 },
  { name: 'Green Gym', deliveriesPerHour: 150, people: 210, unapplied: 7, failedDeliveries: 12 },
  { name: 'Tokyo Ramen', deliveriesPerHour: 350, people: 330, tokenExpiresInDays: 3, quotaUsed: 5_000 },
]

/** An account that can receive further deliveries. */
export interface FleetAccount {
  id: bigint
  channelSecret: string
  botUserId: string
  /** members who write */
  userIds: string[]
}

/** Adds the fleet once, and makes an earlier one as recent as now. Returns the accounts that are well. @param url of the service */
export async function addFleet(
  database: Queryable & Transactions,
  platform: SimulatedPlatform,
  url: string,
): Promise<FleetAccount[]> {
  await database.query(restEarlierChecks)
  const [known] = await database.query<{ id: bigint }>(selectOrganization, [ORGANIZATION])
  const id = known?.id ?? (await addOrganization(database, ORGANIZATION))
  if (known === undefined) for (const member of FLEET) await addMember(database, id, member)
  await addToPlatform(database, platform, url)
  await addStory(database, { id, name: ORGANIZATION })
  await addNotifications(database, id, `${platform.url}/receive/chat`)
  // A visitor does not wait for the next pass.
  await confirmStatuses(database)
  return database.query<FleetAccount & Record<string, unknown>>(selectHealthy, [ORGANIZATION])
}

/** $1 name of the organization text */
const selectAccounts = statement('demo-select-fleet')`
    select a.id, a.name as "displayName", a.channel_id as "channelId", coalesce(a.channel_secret, '') as "channelSecret",
           a.bot_user_id as "botUserId", a.basic_id as "basicId"
      from official_account a join organization o on o.id = a.organization_id
     where o.name = $1 order by a.id`

type KnownAccount = Omit<SimulatedAccount, 'channelAccessToken' | 'loginChannelId'> & { id: bigint }

/** The platform of this run does not know the accounts of earlier runs. It says of each what the fleet shows. */
async function addToPlatform(database: Queryable, platform: SimulatedPlatform, url: string): Promise<void> {
  for (const { id, ...account } of await database.query<KnownAccount>(selectAccounts, [ORGANIZATION])) {
    const { failedCheck } = FLEET.find(({ name }) => name === account.displayName) ?? {}
    const reset = failedCheck === 'access_token' && { channelSecret: randomBytes(16).toString('hex') }
    const { settings } = platform.addAccount({ ...randomAccount(account.displayName), ...account, ...reset })
    settings.webhook = { endpoint: `${url}/api/line/${id}`, active: failedCheck !== 'webhook_active' }
  }
}

/** A check would replace the fictitious figures. Members and follows are counted without a wait. */
const restEarlierChecks = statement('demo-rest-earlier-checks')`
    update account_check set due_at = 'infinity', checked_at = now(), count_due_at = now()`

/** $1 name text */
const selectOrganization = statement('demo-select-organization')`
    select id from organization where name = $1 limit 1`

/** $1 name of the organization text */
const selectHealthy = statement('demo-select-healthy')`
    select a.id, a.channel_secret as "channelSecret", a.bot_user_id as "botUserId",
           array(select user_id from audience_member where channel_oa_id = a.id order by id limit 40) as "userIds"
      from official_account a join organization o on o.id = a.organization_id
     where o.name = $1 and a.channel_secret is not null and (a.verification->>'verified')::boolean
       and exists (select from delivery_hour h where h.channel_oa_id = a.id and h.hour > now() - interval '8 hours')
     order by a.id`

async function addMember(database: Queryable, organizationId: bigint, member: FleetMember): Promise<void> {
  const { id } = await addAccount(database, organizationId, {
    name: member.name,
    channel_id: String(2_000_000_000 + randomBytes(3).readUIntBE(0, 3)),
    channel_secret: member.hasNoSecret ? null : randomBytes(16).toString('hex'),
    bot_user_id: randomUserId(),
    basic_id: `@${randomBytes(4).toString('hex')}`,
  })
  const quota = member.quotaUsed === undefined ? null : 5_000
  const expiresInDays = member.tokenExpiresInDays ?? null
  await database.query(insertPeople, [id, organizationId, member.people])
  await database.query(insertHours, [id, member.deliveriesPerHour, member.silentHours ?? 0])
  const following = Math.round(member.people * 0.84)
  await database.query(insertDays, [id, following, Math.round(member.people * 0.1)])
  await database.query(insertSourceDays, [id])
  await database.query(storeCheck, [id, expiresInDays, quota, member.quotaUsed ?? null])
  await database.query(storeVerification, [id, verificationOf(member.failedCheck)])
  if (member.refused) await database.query(insertRefused, [id, member.refused])
  if (member.unapplied) await database.query(insertUnapplied, [id, member.unapplied])
  if (member.failedDeliveries) await addFailingEndpoint(database, id, member.failedDeliveries)
}

const CHECKS: Array<Check['name']> = ['access_token', 'identity', 'webhook_endpoint', 'webhook_active']

/** As a verification that stopped at the failed check. */
function verificationOf(failed: Check['name'] | undefined): string {
  const count = failed === undefined ? CHECKS.length : CHECKS.indexOf(failed) + 1
  const checks = CHECKS.slice(0, count).map((name) => ({
    name,
    ok: name !== failed,
    message: name === failed ? 'LINE refused it in this simulation.' : 'as expected',
    ...(name === failed && { reason: name === 'webhook_active' ? 'webhook_off' : 'token_refused' }),
  }))
  const verification = {
    verified: failed === undefined,
    account: null,
    accountType: 'unknown',
    webhook: null,
    checks,
  }
  return JSON.stringify({ ...verification, checkedAt: new Date().toISOString() })
}

/** Every third person came from a link of the last 45 days. One person follows both large accounts. $1 account bigint; $2 organization bigint; $3 people int */
const insertPeople = statement('demo-insert-people')`
    insert into audience_member (channel_oa_id, organization_id, user_id, display_name, language, relationship, followed_at, first_followed_at,
                                 source, medium, campaign, source_at, source_key, first_seen_at, last_seen_at, event_count, tags, profile_due_at)
    select $1, $2, 'U' || md5(case when i = 1 and $3 > 400 then 'follows both' else random()::text end),
           (array['Ann','สมชาย','Mali','健二','ゆい','Wei','Nok','พลอย','Hana','Ben','Suda','太郎'])[1 + i % 12] || ' ' || i,
           (array['th','ja','en'])[1 + i % 3],
           case when i % 10 = 0 then 'blocked' when i % 17 = 0 then 'unknown' else 'following' end,
           followed_at, followed_at, link.source, link.medium, link.campaign,
           case when link.source is not null then followed_at - interval '1 minute' end,
           case when link.source is not null then gen_random_uuid() end,
           followed_at, greatest(followed_at, now() - random() * interval '40 days'),
           1 + floor(random() * 60), case when i % 6 = 0 then array['vip'] else '{}' end, null
      from (select i, now() - random() * case when i % 3 = 0 then interval '45 days' else interval '300 days' end as followed_at
              from generate_series(1, $3::int) as i) person
      left join (values (0, 'qr-shop', 'poster', 'autumn'), (3, 'instagram', 'social', 'autumn'), (6, 'line-ads', 'cpc', 'new-friends'),
                        (9, 'qr-shop', 'poster', 'autumn'), (12, 'receipt', 'print', null)) as link (rest, source, medium, campaign)
        on link.rest = i % 15`

/** Busiest at noon in Tokyo. $1 account bigint; $2 deliveries per hour at noon float8; $3 hours since the last delivery int */
const insertHours = statement('demo-insert-hours')`
    insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, duplicates, last_at)
    select $1, hour, 'line', deliveries, deliveries, deliveries / 40, least(hour + interval '50 minutes', now() - interval '20 seconds')
      from (select hour, floor($2 * (1.05 - cos((extract(hour from hour) + 12) / 24 * 2 * pi() + pi() * 0.75)) / 2
                                * (0.7 + random() * 0.6))::bigint + 1 as deliveries
              from generate_series(date_trunc('hour', now()) - interval '28 days',
                                   date_trunc('hour', now()) - $3::int * interval '1 hour', interval '1 hour') as hour) as busy`

/**
 * Each day has the people who followed first on it, some returns and blocks, and the followers that follow from those of today. LINE's counts
 * are nearly the same.
 *
 * $1 account bigint; $2 people who follow int; $3 people who blocked int
 */
const insertDays = statement('demo-insert-days')`
    with figures as materialized (
      select age, (now() at time zone 'UTC' + interval '9 hours')::date - age as day, coalesce(new.people, 0) as first_follows,
             floor(random() * 1.6 * $3::int / 30)::int as returns, round(random() * 3 * $3::int / 45)::int as unfollows
        from generate_series(0, 60) as age
        left join (select (first_followed_at at time zone 'UTC' + interval '9 hours')::date as day, count(*)::int as people
                     from audience_member where channel_oa_id = $1::bigint group by 1) new
          on new.day = (now() at time zone 'UTC' + interval '9 hours')::date - age
    )
    insert into account_day (channel_oa_id, day, members, following, blocked, first_follows, returns, unfollows, blocked_within_7_days,
                             events_counted_at, line_followers, line_blocks)
    select $1::bigint, day, $2::int + $3::int, $2 - later.net, greatest(0, $3 - later.left), first_follows, returns, unfollows,
           least(first_follows, unfollows + 1) / 2, now(), $2 + $3 + 4 - later.new + (age + $2) % 9 / 8, greatest(0, $3 - later.left)
      from figures f
     cross join lateral (select coalesce(sum(first_follows), 0) as new, coalesce(sum(unfollows - returns), 0) as left,
                                coalesce(sum(first_follows + returns - unfollows), 0) as net
                           from figures where age < f.age) later`

/** $1 account bigint */
const insertSourceDays = statement('demo-insert-source-days')`
    insert into source_day
    select $1::bigint, (first_followed_at at time zone 'UTC' + interval '9 hours')::date, source, count(*), 0, 0, floor(count(*) * random() * 0.6),
           count(*) filter (where relationship = 'following'), count(*) filter (where last_seen_at > now() - interval '30 days')
      from audience_member where channel_oa_id = $1::bigint and source is not null group by 1, 2, 3`

/**
 * With the counts that the service makes within minutes, so that the fleet shows them immediately.
 *
 * $1 account bigint; $2 days until the token expires int or null; $3 quota bigint or null; $4 used messages bigint or null
 */
const storeCheck = statement('demo-store-check')`
    update account_check c
       set due_at = 'infinity', checked_at = now(), token_expires_at = now() + $2::int * interval '1 day',
           quota_limit = $3, quota_used = $4, members = counted.members, following = counted.following,
           blocked = counted.blocked, profiles_due = 0, counted_at = now(),
           following_week_ago = (select d.following from account_day d
                                  where d.channel_oa_id = $1 and d.day <= (now() at time zone 'UTC')::date - 7
                                  order by d.day desc limit 1)
      from (select count(*) as members, count(*) filter (where relationship = 'following') as following,
                   count(*) filter (where relationship = 'blocked') as blocked
              from audience_member where channel_oa_id = $1) counted
     where c.channel_oa_id = $1`

/** $1 account bigint; $2 verification jsonb */
const storeVerification = statement('demo-store-verification')`
    update official_account set verification = $2, verified_at = now() where id = $1`

/** $1 account bigint; $2 deliveries int */
const insertRefused = statement('demo-insert-refused')`
    insert into delivery_hour (channel_oa_id, hour, source, refused, last_refused_at)
    select $1, date_trunc('hour', now()) - hours * interval '1 hour', 'line', $2 / 12, now() - hours * interval '1 hour'
      from generate_series(0, 11) as hours`

/** $1 account bigint; $2 events int */
const insertUnapplied = statement('demo-insert-unapplied')`
    insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, failure)
    select $1, 'line', 'message', gen_random_uuid(), now() - i * interval '9 minutes', 'U' || md5(i::text),
           '{"type":"message","timestamp":"yesterday","source":{"type":"user"},"message":{"type":"text","text":"สวัสดี ☕"}}',
           'the time is not a number of milliseconds between the years 1970 and 9999'
      from generate_series(1, $2::int) as i`

async function addFailingEndpoint(database: Queryable, accountId: bigint, failed: number): Promise<void> {
  const endpoint = {
    accountId,
    name: 'Loyalty app',
    url: 'https://loyalty.example/hooks',
    format: 'line' as const,
  }
  const added = await addEndpoint(
    database,
    { ...endpoint, events: null, condition: null, replies: false, priority: 0, allowPrivateNetwork: false },
    [],
  )
  await database.query(insertFailedDeliveries, [accountId, added?.id, failed])
  await database.query(insertEndpointHours, [added?.id])
}

/** $1 account bigint; $2 endpoint bigint; $3 deliveries int */
const insertFailedDeliveries = statement('demo-insert-failed-deliveries')`
    insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, attempts, failed_at, status, answer, created_at)
    select $1, $2, array[gen_random_uuid()], 14, now() - i * interval '20 minutes', 502, 'Bad Gateway', now() - interval '1 day'
      from generate_series(1, $3::int) as i`

/** It accepted nearly everything until six hours ago, and has refused everything since. $1 endpoint bigint */
const insertEndpointHours = statement('demo-insert-endpoint-hours')`
    with known as (
      insert into endpoint_answer (endpoint_id) values ($1) returning endpoint_id)
    insert into endpoint_hour (endpoint_id, slot, hour, attempts, refused, duration_ms)
    select endpoint_id, extract(epoch from hour)::bigint / 3600 % 25, hour, attempts,
           case when hours <= 6 then attempts else attempts / 40 end, attempts * (case when hours <= 6 then 900 else 110 end + hours * 7)
      from known cross join generate_series(1, 24) hours
     cross join lateral (select date_trunc('hour', now()) - hours * interval '1 hour' as hour, 40 + hours * 37 % 50 as attempts) h`
