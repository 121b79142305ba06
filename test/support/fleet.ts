/** A fleet as large as an agency has it, loaded by SQL, with something on every page of the console. */
import { randomUUID } from 'node:crypto'
import { confirmStatuses } from '../../src/watch/store-statuses.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, type Tenant } from './database.ts'
import { insertRow, load, loadMembers } from './load.ts'
import { addClientNamed } from './operations.ts'

const UNAPPLIED = 120
const FAILED_DELIVERIES = 60
const CLIENTS = 60

export interface Fleet {
  /** has members U1, U2, …, an endpoint with failed deliveries, and events that could not be applied */
  tenant: Tenant
  endpointId: bigint
  /** an event that could not be applied, and can be by a retry */
  eventId: bigint
  clientId: bigint
}

/**
 * @param accounts further accounts, with deliveries of a day and counts of a month
 * @param members members of the first account
 */
export async function loadFleet(
  database: TextDatabase,
  { accounts, members }: { accounts: number; members: number },
): Promise<Fleet> {
  const tenant = await addTenant(database)
  await loadAccounts(database, tenant, accounts)
  await loadMembers(database, tenant, members, {
    display_name: `(array['Ann', 'สมชาย', '健二', 'Zoë', 'Ben'])[1 + i % 5] || ' ' || i`,
    relationship: `(array['following', 'blocked', 'unknown'])[1 + i % 3]`,
    tags: `case when i % 3 = 0 then array['vip', 'bangkok'] else '{}' end::text[]`,
    external_id: `'crm-' || i`,
    attributes: `jsonb_build_object('plan', 'gold', 'points', i)`,
    last_seen_at: `now() - i * interval '1 minute'`,
    event_count: 'i % 100',
    profile_due_at: 'null',
  })
  await load(database, insertTimeline, [tenant.accountId])
  await load(database, insertUnapplied, [tenant.accountId, UNAPPLIED])
  const { id: clientId } = await addClientNamed(database, 'CRM', tenant.accountId)
  await load(database, insertClients, [CLIENTS])
  const endpointId = await addFailingEndpoint(database, tenant)
  const eventId = await addCurableEvent(database, tenant)
  await confirmStatuses(database)
  return { tenant, endpointId, eventId, clientId }
}

async function loadAccounts(database: TextDatabase, { organizationId }: Tenant, count: number) {
  await load(database, insertAccounts, [organizationId, count])
  await load(database, insertHours)
  await load(database, insertDays)
  await load(database, insertSourceDays)
  await load(database, storeChecks)
  await load(database, 'analyze')
}

/** One endpoint whose receiver fails. The content of its deliveries is one event. */
async function addFailingEndpoint(database: TextDatabase, { accountId }: Tenant): Promise<bigint> {
  const columns = { channel_oa_id: accountId, name: 'Chat tool', url: 'https://tool.example/webhook' }
  const id = await insertRow(database, 'endpoint', columns)
  await load(database, insertFailedDeliveries, [accountId, id, FAILED_DELIVERIES])
  return id
}

/** An event as LINE sends it that could not be applied. */
export const addCurableEvent = (
  database: TextDatabase,
  { accountId }: Tenant,
  failure = 'the account is locked',
): Promise<bigint> =>
  insertRow(database, 'event', {
    ...{ channel_oa_id: accountId, source: 'line', kind: 'follow', key: randomUUID(), failure },
    ...{ occurred_at: new Date().toISOString(), payload: JSON.stringify(lineEvent('follow', 'U1')) },
  })

/** $1 organization bigint, $2 number of accounts int */
const insertAccounts = `
  insert into official_account (organization_id, name, channel_id, channel_secret, bot_user_id, basic_id)
  select $1, (array['Corner Coffee', 'ร้านกาแฟ', 'さくら薬局', 'Hotel'])[1 + i % 4] || ' ' || i, i::text,
         case when i % 9 > 0 then 'secret' end, 'U' || md5(i::text), '@shop' || i
    from generate_series(1, $2::int) i`

const insertHours = `
  insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, refused, last_at)
  select id, hour, 'line', 1 + (id * 7 + extract(hour from hour)::int) % 40, 10, case when id % 11 = 0 then 3 else 0 end, hour
    from official_account, generate_series(date_trunc('hour', now()) - interval '30 hours', now(), interval '1 hour') hour
   where id % 13 > 0`

const insertDays = `
  insert into account_day (channel_oa_id, day, members, following, blocked, first_follows, returns, unfollows, blocked_within_7_days,
                           events_counted_at, line_followers, line_blocks)
  select id, (now() at time zone 'UTC' + interval '9 hours')::date - age, 1000 - age, 900 - age * 2, 100 - age,
         3 + (id + age) % 4, 1, 2 + (id + age) % 3, 1, now(), 1004 - age, 101 - age
    from official_account, generate_series(0, 60) age`

const insertSourceDays = `
  insert into source_day
  select id, (now() at time zone 'UTC' + interval '9 hours')::date - age, (array['qr-shop', 'instagram'])[1 + age % 2], 2, 0, 1, 1, 1, 1
    from official_account, generate_series(0, 30) age where id % 10 = 0`

/** As the account monitor leaves them. */
const storeChecks = `
  update account_check c
     set members = 1000, following = 900, blocked = 100, quota_limit = 5000, quota_used = (channel_oa_id * 37) % 4000,
         due_at = 'infinity', judged_at = now(), silent_since = h.last_at, following_week_ago = 914,
         deliveries_before = h.deliveries, events_before = h.events, failed_before = 0
    from (select channel_oa_id as id, max(last_at) as last_at, sum(deliveries) as deliveries, sum(accepted) as events
            from delivery_hour where hour > now() - interval '24 hours' group by channel_oa_id) h
   where c.channel_oa_id = h.id`

/** Sixty acts and an edit of the first member. $1 account bigint */
const insertTimeline = `
  with edit as (
    insert into member_edit (channel_oa_id, member_id, fields)
    select channel_oa_id, id, array['tags', 'attributes'] from audience_member where channel_oa_id = $1 and user_id = 'U1'
  )
  insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, is_forwarded)
  select $1, (array['line', 'mbox', 'tracking'])[1 + i % 3], (array['message', 'conversation_updated', 'page'])[1 + i % 3],
         gen_random_uuid(), now() - i * interval '1 hour', 'U1', '{"text":"hello"}', true
    from generate_series(1, 60) i`

/** $1 account bigint, $2 number int */
const insertUnapplied = `
  insert into event (channel_oa_id, source, kind, key, occurred_at, failure, payload)
  select $1, 'line', 'message', gen_random_uuid(), now(), 'source.userId is not a text', '{"type":"message","source":{"userId":7}}'
    from generate_series(1, $2::int)`

/** $1 account bigint, $2 endpoint bigint, $3 number int */
const insertFailedDeliveries = `
  with sent as (
    update event set queued_for = array[$2::bigint]
     where key = (select key from event where channel_oa_id = $1 and source = 'line' and failure is null limit 1)
    returning key
  )
  insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, attempts, created_at, failed_at, status, answer)
  select $1, $2, array[key], 9, now() - interval '1 day', now(), 500, 'the receiver is being replaced'
    from sent, generate_series(1, $3::int)`

/** $1 number int */
const insertClients = `
  insert into api_client (client_id, client_secret, name)
  select 'client-' || i, random_token(), 'Partner ' || i from generate_series(1, $1::int) i`
