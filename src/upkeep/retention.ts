/** Deletes rows after their retention. Each statement deletes few rows, so that no other session waits for it. See docs/planner.md. */
import type { Config } from '../config/config.ts'
import { type Queryable, type Statement, statement } from '../postgres/statement.ts'
import {
  dropExpiredKeyPartitions,
  dropExpiredPartitions,
  EVENTS,
  TRACKING_EVENTS,
  unlessLocked,
} from './partitions.ts'

const ROWS_PER_STATEMENT = 10_000

/** The rhythm of an account is compared over four weeks. */
const HOURS_KEPT_DAYS = 35
/** Three years, for the report. */
const DAYS_KEPT_DAYS = 1_096

/** Operators look at what they did last month. */
const JOBS_KEPT_DAYS = 30

/** A message that is not sent within a day has failed permanently. Reminders repeat what is older. */
const NOTIFICATIONS_KEPT_DAYS = 30

/** A delta feed from an older time starts from the beginning. A mark every 10 s makes 260,000 rows in 30 days. */
const MARKS_KEPT_DAYS = 30

export type Retention = Pick<
  Config,
  'retentionDays' | 'deduplicationDays' | 'trackingRetentionDays' | 'auditRetentionDays'
>

/** RETENTION_DAYS 0 keeps events, edits and failures. */
export async function deleteExpired(session: Queryable, retention: Retention): Promise<void> {
  const { retentionDays, trackingRetentionDays, deduplicationDays } = retention
  if (retentionDays > 0) await dropExpiredPartitions(session, EVENTS, retentionDays)
  await dropExpiredPartitions(session, TRACKING_EVENTS, trackingRetentionDays)
  await dropExpiredKeyPartitions(session, deduplicationDays)
  for (const [days, statement, further = 0] of DELETIONS) {
    if (days === 'retentionDays' && retentionDays === 0) continue
    await deleteInBatches(session, statement, (typeof days === 'number' ? days : retention[days]) + further)
  }
}

async function deleteInBatches(session: Queryable, statement: Statement, days: number): Promise<void> {
  for (let deleted = ROWS_PER_STATEMENT; deleted === ROWS_PER_STATEMENT; ) {
    const rows = await unlessLocked(session.query<{ count: number }>(statement, [days, ROWS_PER_STATEMENT]))
    deleted = rows?.[0]?.count ?? 0
  }
}

// Parameters of all statements: $1 int: days; $2 int: rows. Each finds its rows by a B-tree. `order by` makes the planner use the index
// before statistics exist. The time is checked again in the delete, because the row may have changed since it was found. A row that another program has locked waits for the next run.

function deleteOlder(name: string, table: string, time: string, condition = 'true'): Statement {
  return statement(name)`
    with deleted as (
      delete from ${table}
       where ctid = any (array(select ctid from ${table}
                                where ${condition} and ${time} < now() - $1 * interval '1 day' order by ${time} limit $2 for update skip locked))
         and ${condition} and ${time} < now() - $1 * interval '1 day'
      returning 1)
    select count(*)::int from deleted`
}

/** Deletes the activity of people who are not members. That of members is dated to this month, so that not every run finds it. */
const reviewTrackedActivity = statement('review-tracked-activity')`
    with reviewed as materialized (
      select t.channel_oa_id, t.user_id, m.user_id is not null as is_member
        from (select channel_oa_id, user_id from tracked_activity
               where active_month < (now() at time zone 'UTC')::date - $1::int - 31
               order by active_month limit $2 for update skip locked) t
        left join lateral (select user_id from audience_member
                            where channel_oa_id = t.channel_oa_id and user_id = t.user_id offset 0) m on true
       order by t.channel_oa_id, t.user_id
    ), kept as (
      update tracked_activity t set active_month = date_trunc('month', now() at time zone 'UTC')::date
        from reviewed r
       where r.is_member and t.channel_oa_id = r.channel_oa_id and t.user_id = r.user_id
      returning 1
    ), deleted as (
      delete from tracked_activity t using reviewed r
       where not r.is_member and t.channel_oa_id = r.channel_oa_id and t.user_id = r.user_id
         and t.received_at < now() - $1 * interval '1 day'
      returning 1
    )
    select (select count(*) from kept)::int + (select count(*) from deleted)::int as count`

/** Before the jobs: a job may have 30,000 accounts, and its own deletion would delete them all in one statement. */
const deleteJobAccounts = statement('delete-job-accounts')`
    with deleted as (
      delete from changed_account
       where ctid = any (array(select r.ctid from job j join changed_account r on r.job_id = j.id
                                where j.finished_at < now() - $1 * interval '1 day' order by j.finished_at limit $2 for update of r skip locked))
      returning 1)
    select count(*)::int from deleted`

const DELETIONS: Array<[days: number | keyof Retention, statement: Statement, further?: number]> = [
  ['retentionDays', deleteOlder('delete-unpartitioned-events', 'event_default', 'received_at')],
  ['retentionDays', deleteOlder('delete-edits', 'member_edit', 'edited_at')],
  // The source of a member stays. It takes part as a touch if an earlier follow arrives.
  ['retentionDays', deleteOlder('delete-touches', 'member_touch', 'received_at')],
  // Not before the partition of its events is dropped: the page of an event says of a delivery that is gone that it was accepted.
  [
    'retentionDays',
    deleteOlder('delete-failed-deliveries', 'endpoint_delivery', 'created_at', 'failed_at is not null'),
    EVENTS.days,
  ],
  [
    'trackingRetentionDays',
    deleteOlder('delete-unpartitioned-tracking-events', 'tracking_event_default', 'received_at'),
  ],
  ['deduplicationDays', deleteOlder('delete-hashed-keys', 'event_key_hashed', 'received_at')],
  ['deduplicationDays', deleteOlder('delete-unpartitioned-keys', 'event_key_default', 'received_at')],
  // A message may arrive after its unsend, as late as any event.
  ['deduplicationDays', deleteOlder('delete-unsent-messages', 'unsent_message', 'unsent_at')],
  ['deduplicationDays', reviewTrackedActivity],
  ['deduplicationDays', deleteOlder('delete-tombstones', 'erased_member', 'deleted_at')],
  [MARKS_KEPT_DAYS, deleteOlder('delete-change-marks', 'change_mark', 'marked_at')],
  [HOURS_KEPT_DAYS, deleteOlder('delete-delivery-hours', 'delivery_hour', 'hour')],
  [DAYS_KEPT_DAYS, deleteOlder('delete-account-days', 'account_day', 'day')],
  [DAYS_KEPT_DAYS, deleteOlder('delete-source-days', 'source_day', 'day')],
  [0, deleteOlder('delete-expired-sessions', 'operator_session', 'expires_at')],
  ['auditRetentionDays', deleteOlder('delete-activity', 'activity', 'occurred_at')],
  [JOBS_KEPT_DAYS, deleteJobAccounts],
  [JOBS_KEPT_DAYS, deleteOlder('delete-jobs', 'job', 'finished_at')],
  [NOTIFICATIONS_KEPT_DAYS, deleteOlder('delete-notifications', 'notification', 'created_at')],
]
