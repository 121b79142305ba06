/** Statements of a pass over notification_watch, account_alert and the rows that it locks. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import type { Reason } from '../../operator/accounts/account-status.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import type { Channel } from './plan-messages.ts'
import type { PlatformState } from './platform.ts'
import type { Alert, Level } from './transitions.ts'

// Times are milliseconds since 1970 of the database's clock, which all instances share.

/**
 * Returns no row unless this process makes the next pass.
 *
 * $1 float8: milliseconds between passes
 */
const claimNext = statement('claim-notification-pass')`
    update notification_watch set pass = pass + 1, passed_at = now()
     where is_due(passed_at + $1::float8 * interval '1 millisecond', $1::float8 * interval '1 millisecond')
    returning pass, extract(epoch from now())::float8 * 1000 as now,
              exists (select from notification_channel where status = 'active') as "hasChannels"`

export interface ClaimedPass extends Row {
  pass: bigint
  now: number
  /** at least one is active */
  hasChannels: boolean
}

export async function claimPass(database: Queryable, intervalMs: number): Promise<ClaimedPass | null> {
  const [claimed] = await database.query<ClaimedPass>(claimNext, [intervalMs])
  return claimed ?? null
}

/**
 * Arbitrary but fixed. This advisory lock lets one transaction at a time store a pass. A lock of the row of notification_watch would
 * also delay the heartbeat.
 */
const PASS_LOCK = 7_301_008

/** $1 bigint: PASS_LOCK. Held until the transaction ends. */
const lockPasses = statement('lock-notification-passes')`select pg_advisory_xact_lock($1::bigint)`

/** $1 pass bigint */
const selectWatch = statement('select-notification-watch')`
    select extract(epoch from clock_timestamp())::float8 * 1000 as now,
           extract(epoch from platform_down_since)::float8 * 1000 as "downSince", is_platform_announced as "isAnnounced",
           (select extract(epoch from max(created_at))::float8 * 1000 from notification
             where kind = 'platform_up' and created_at > now() - interval '1 day') as "upAt"
      from notification_watch where pass = $1`

export interface WatchState extends PlatformState, Row {
  now: number
  /** when the last outage of a day ended */
  upAt: number | null
}

/** Returns null if another process has begun a later pass: this one took too long. A later pass waits for this transaction. */
export async function lockPass(transaction: Queryable, pass: bigint): Promise<WatchState | null> {
  await transaction.query(lockPasses, [PASS_LOCK])
  const [watch] = await transaction.query<WatchState>(selectWatch, [pass])
  return watch ?? null
}

/** $1 boolean; $2 float8 or null */
const storePlatform = statement('store-platform-state')`
    update notification_watch
       set is_platform_announced = $1, platform_down_since = to_timestamp($2::float8 / 1000), completed_at = now()`

export async function storePlatformState(transaction: Queryable, state: PlatformState): Promise<void> {
  await transaction.query(storePlatform, [state.isAnnounced, state.downSince])
}

/** $1 pass bigint. A channel that is added later is notified of everything that is broken then. */
const forget = statement('forget-account-alerts')`
    with watch as materialized (
      update notification_watch set platform_down_since = null, is_platform_announced = false, completed_at = now()
       where pass = $1 returning 1)
    delete from account_alert using watch`

export async function forgetAlerts(database: Queryable, pass: bigint): Promise<void> {
  await database.query(forget, [pass])
}

/** They stay until the transaction ends. One that is being removed is skipped. */
const lockChannels = statement('lock-active-notification-channels')`
    select id, organization_id as "organizationId", extract(epoch from created_at)::float8 * 1000 as "createdAt"
      from notification_channel where status = 'active' order by id for key share skip locked`

export function lockActiveChannels(transaction: Queryable): Promise<Array<Channel & Row>> {
  return transaction.query<Channel & Row>(lockChannels)
}

/** $1 account ids bigint[]. They stay until the transaction ends. One that is being removed is skipped. */
const lockPresent = statement('lock-alerted-accounts')`
    select id from official_account where id = any ($1) order by id for key share skip locked`

export async function lockAccounts(transaction: Queryable, ids: AccountId[]): Promise<Set<AccountId>> {
  if (ids.length === 0) return new Set()
  const rows = await transaction.query<{ id: AccountId }>(lockPresent, [ids])
  return new Set(rows.map(({ id }) => id))
}

const selectAlerts = statement('select-account-alerts')`
    select l.channel_oa_id as id, a.organization_id as "organizationId", l.status, l.passes,
           extract(epoch from l.since)::float8 * 1000 as since, l.announced_status as "announcedStatus",
           l.announced_reason as "announcedReason", extract(epoch from l.announced_at)::float8 * 1000 as "announcedAt",
           extract(epoch from l.reminded_at)::float8 * 1000 as "remindedAt"
      from account_alert l join official_account a on a.id = l.channel_oa_id`

interface AlertRow extends Row {
  id: AccountId
  organizationId: OrganizationId
  status: Level
  passes: number
  since: number
  announcedStatus: 'broken' | 'degraded' | null
  announcedReason: Reason | null
  announcedAt: number | null
  remindedAt: number | null
}

export async function readAlerts(transaction: Queryable): Promise<Map<AccountId, Alert>> {
  const rows = await transaction.query<AlertRow>(selectAlerts)
  return new Map(rows.map((row) => [row.id, alertOf(row)]))
}

function alertOf(row: AlertRow): Alert {
  const { id, organizationId, status, passes, since, announcedStatus, announcedReason } = row
  const at = row.announcedAt ?? since
  const announced =
    announcedStatus === null || announcedReason === null
      ? null
      : { status: announcedStatus, reason: announcedReason, at, remindedAt: row.remindedAt ?? at }
  return { id, organizationId, status, passes, since, announced }
}

/** $1 account ids bigint[] */
const deleteAlerts = statement(
  'delete-account-alerts',
)`delete from account_alert where channel_oa_id = any ($1)`

/**
 * $1 account ids bigint[]; $2 statuses text[]; $3 passes int[]; $4 since float8[]; $5 announced statuses text[]; $6 reasons text[];
 * $7 announced at float8[]; $8 reminded at float8[]
 */
const upsertAlerts = statement('store-account-alerts')`
    insert into account_alert (channel_oa_id, status, passes, since, announced_status, announced_reason, announced_at, reminded_at)
    select id, status, passes, to_timestamp(since / 1000), announced_status, reason, to_timestamp(announced_at / 1000),
           to_timestamp(reminded_at / 1000)
      from unnest($1::bigint[], $2::text[], $3::int[], $4::float8[], $5::text[], $6::text[], $7::float8[], $8::float8[])
           as t (id, status, passes, since, announced_status, reason, announced_at, reminded_at)
        on conflict (channel_oa_id) do update set
           status = excluded.status, passes = excluded.passes, since = excluded.since, announced_status = excluded.announced_status,
           announced_reason = excluded.announced_reason, announced_at = excluded.announced_at, reminded_at = excluded.reminded_at`

export async function storeAlerts(
  transaction: Queryable,
  stored: Alert[],
  deleted: AccountId[],
): Promise<void> {
  if (deleted.length > 0) await transaction.query(deleteAlerts, [deleted])
  if (stored.length === 0) return
  await transaction.query(upsertAlerts, [
    ...[stored.map(({ id }) => id), stored.map(({ status }) => status), stored.map(({ passes }) => passes)],
    ...[stored.map(({ since }) => since), stored.map(({ announced }) => announced?.status ?? null)],
    stored.map(({ announced }) => announced?.reason ?? null),
    stored.map(({ announced }) => announced?.at ?? null),
    stored.map(({ announced }) => announced?.remindedAt ?? null),
  ])
}
