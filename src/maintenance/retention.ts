/** Deletes what has been stored long enough. Each statement deletes few rows, so that no other session waits for it. */
import type { Config } from '../config.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'
import { dropExpiredPartitions, EVENTS, TRACKING_EVENTS, unlessLocked } from './partitions.ts'

/** Rows deleted in one statement. */
const ROWS_PER_STATEMENT = 10_000

/** The rhythm of an account is compared over four weeks. */
const HOURS_KEPT_DAYS = 35
/** A year of followers, to compare with the same day of the year before. */
const DAYS_KEPT_DAYS = 400
/** Only earlier versions of the service write them. */
const REFUSALS_KEPT_DAYS = 30

/** A delta feed of an older time begins at the beginning. A mark every ten seconds makes 260,000 rows in this time. */
const MARKS_KEPT_DAYS = 30

export type Retention = Pick<Config, 'retentionDays' | 'deduplicationDays' | 'trackingRetentionDays'>

/**
 * Deletes events, edits and failed deliveries to endpoints beyond RETENTION_DAYS (0 keeps them), tracking events beyond
 * TRACKING_RETENTION_DAYS, and beyond DEDUPLICATION_DAYS event keys, ids of unsent messages, tombstones, and tracked activity of
 * people who are not members. Change marks are kept for 30 days, counts of
 * deliveries for 35, and the daily figures of accounts for 400. Sessions of the console are deleted once they have expired.
 */
export async function deleteExpired(
  session: Queryable,
  { retentionDays, deduplicationDays, trackingRetentionDays }: Retention,
): Promise<void> {
  if (retentionDays > 0) {
    await dropExpiredPartitions(session, EVENTS, retentionDays)
    await deleteInBatches(session, deleteUnpartitionedEvents, retentionDays)
    await deleteInBatches(session, deleteEdits, retentionDays)
    await deleteInBatches(session, deleteFailedDeliveries, retentionDays)
  }
  await deleteInBatches(session, deleteOrphanedDeliveries, 0)
  await dropExpiredPartitions(session, TRACKING_EVENTS, trackingRetentionDays)
  await deleteInBatches(session, deleteUnpartitionedTrackingEvents, trackingRetentionDays)
  await deleteInBatches(session, deleteEventKeys, deduplicationDays)
  // A message may arrive after its unsend, as late as any event.
  await deleteInBatches(session, deleteUnsentMessages, deduplicationDays)
  await deleteInBatches(session, deleteTrackedActivity, deduplicationDays)
  await deleteInBatches(session, deleteTombstones, deduplicationDays)
  await deleteInBatches(session, deleteMarks, MARKS_KEPT_DAYS)
  await deleteInBatches(session, deleteDeliveryHours, HOURS_KEPT_DAYS)
  await deleteInBatches(session, deleteAccountDays, DAYS_KEPT_DAYS)
  await deleteInBatches(session, deleteExpiredSessions, 0)
  await unlessLocked(session.query(deleteRefusals, [REFUSALS_KEPT_DAYS]))
}

async function deleteInBatches(session: Queryable, statement: Statement, days: number): Promise<void> {
  for (let deleted = ROWS_PER_STATEMENT; deleted === ROWS_PER_STATEMENT; ) {
    const rows = await unlessLocked(session.query<{ count: number }>(statement, [days, ROWS_PER_STATEMENT]))
    deleted = rows?.[0]?.count ?? 0
  }
}

// All of them: $1 int: days; $2 int: rows. Large tables have a BRIN index on the time, which finds old rows without reading
// the others; tracked_activity has none, because its rows change, and is read as a whole. The time is checked again when the
// row is deleted: it may have moved since it was found.

/** The rows of a table whose time is too old. */
function deleteOlder(name: string, table: string, time: string): Statement {
  return {
    name,
    text: `
    with deleted as (
      delete from ${table}
       where ctid = any (array(select ctid from ${table}
                                where ${time} < now() - $1 * interval '1 day' limit $2))
         and ${time} < now() - $1 * interval '1 day'
      returning 1)
    select count(*)::int from deleted`,
  }
}

const deleteUnpartitionedEvents = deleteOlder('delete-unpartitioned-events', 'event_default', 'received_at')

const deleteUnpartitionedTrackingEvents = deleteOlder(
  'delete-unpartitioned-tracking-events',
  'tracking_event_default',
  'received_at',
)

const deleteEdits = deleteOlder('delete-edits', 'member_edit', 'edited_at')

/** Counted from when the delivery was received, like its events. */
const deleteFailedDeliveries: Statement = {
  name: 'delete-failed-deliveries',
  text: `
    with deleted as (
      delete from endpoint_delivery
       where ctid = any (array(select d.ctid from endpoint p
                                 join endpoint_delivery d on d.endpoint_id = p.id
                                where d.failed_at is not null and d.created_at < now() - $1 * interval '1 day' limit $2))
         and failed_at is not null and created_at < now() - $1 * interval '1 day'
      returning 1)
    select count(*)::int from deleted`,
}

/** Written by a flush that began before the endpoint was removed. */
const deleteOrphanedDeliveries: Statement = {
  name: 'delete-deliveries-of-removed-endpoints',
  text: `
    with deleted as (
      delete from endpoint_delivery
       where ctid = any (array(select d.ctid from endpoint_delivery d
                                where d.created_at < now() - $1 * interval '1 day'
                                  and not exists (select from endpoint p where p.id = d.endpoint_id) limit $2))
      returning 1)
    select count(*)::int from deleted`,
}

const deleteEventKeys = deleteOlder('delete-event-keys', 'event_key', 'received_at')

const deleteUnsentMessages = deleteOlder('delete-unsent-messages', 'unsent_message', 'unsent_at')

const deleteTrackedActivity: Statement = {
  name: 'delete-tracked-activity-of-strangers',
  text: `
    with deleted as (
      delete from tracked_activity
       where ctid = any (array(select t.ctid from tracked_activity t
                                where t.received_at < now() - $1 * interval '1 day'
                                  and not exists (select from audience_member m
                                                   where m.channel_oa_id = t.channel_oa_id and m.user_id = t.user_id)
                                limit $2))
         and received_at < now() - $1 * interval '1 day'
      returning 1)
    select count(*)::int from deleted`,
}

const deleteTombstones = deleteOlder('delete-tombstones', 'erased_member', 'deleted_at')

const deleteMarks = deleteOlder('delete-change-marks', 'change_mark', 'marked_at')

const deleteDeliveryHours = deleteOlder('delete-delivery-hours', 'delivery_hour', 'hour')

const deleteAccountDays = deleteOlder('delete-account-days', 'account_day', 'day')

const deleteExpiredSessions = deleteOlder('delete-expired-sessions', 'operator_session', 'expires_at')

/** $1 int: days. */
const deleteRefusals: Statement = {
  name: 'delete-refusals',
  text: `delete from refused_delivery where day < (now() at time zone 'UTC')::date - $1::int`,
}
