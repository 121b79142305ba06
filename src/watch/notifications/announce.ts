/**
 * Makes messages of what changed and was not announced yet, in one transaction. The current rows of notification_account have what each
 * channel was sent last about an account that has a problem. The end of a mute makes the problem a new one (`forgetMuted`).
 */
import { PASS_LOCK, takeLock } from '../../postgres/locks.ts'
import { type Statement, statement, type Transactions } from '../../postgres/statement.ts'

/** Accounts that break within a minute are one message. */
export const GROUP_SECONDS = 45
/** Messages of one channel about one reason. What follows is collected until the hour is over. */
export const PER_HOUR_MAX = 3
/** A reminder has all that was announced more than an hour ago. */
const REMINDER_HOURS = 24
/** Accounts of the messages that one statement makes, unless one message has more. 30,000 take about 2 s, and a statement may take 5 s. */
const ACCOUNTS_PER_STATEMENT = 10_000

/** PostgreSQL has no statistics of the lists that are joined: it would compare each of 30,000 accounts with each of 1,000 channels. */
const refuseNestedLoops = statement('refuse-nested-loops')`select set_config('enable_nestloop', 'off', true)`

const selectPass = statement('select-status-pass')`select from notification_watch where pass = $1`

const completePass = statement('complete-status-pass')`update notification_watch set completed_at = now()`

/** Active channels, and what each was sent. */
const CHANNELS = `channel as materialized (
      select id, organization_id from notification_channel where status = 'active' order by id for key share skip locked
    ), sent as materialized (
      select n.notification_channel_id as channel_id, t.channel_oa_id as account_id, t.notification_id, t.after, t.problem, t.since,
             n.created_at
        from notification_account t join notification n on n.id = t.notification_id
       where t.is_current)`

const MESSAGES = `former as (
      update notification_account t set is_current = false
        from part where t.notification_id = part.sent_id and t.channel_oa_id = part.account_id
    ), stored as (
      insert into notification_account (notification_id, channel_oa_id, before, after, problem, since, is_current)
      select m.id, part.account_id, part.before, part.after, part.problem, part.since, part.kind <> 'recovery'
        from part
        join message m on m.notification_channel_id = part.channel_id and m.kind = part.kind
                      and m.reason is not distinct from part.reason)
    select count(*)::int as count from message`

const forgetMuted = statement('forget-muted-problems')`
    update notification_account t set is_current = false
      from account_check k where t.is_current and k.channel_oa_id = t.channel_oa_id and k.muted_until > now()`

/**
 * Accounts with one reason are one message. A status counts once an earlier pass saw it, too.
 *
 * $1 seconds int: GROUP_SECONDS; $2 int: PER_HOUR_MAX; $3 int: ACCOUNTS_PER_STATEMENT
 */
const announceChanges = statement('announce-account-statuses')`
    with ${CHANNELS}, coverage as materialized (
      select id as channel_id, organization_id from channel where organization_id is not null
       union all
      select channel.id, o.id from channel cross join organization o where channel.organization_id is null
    ), seen as (
      select a.id as account_id, a.organization_id, k.status, k.status_since, k.problems->0 as problem,
             case when k.status in ('broken', 'degraded') then k.status else 'ok' end as level
        from account_check k
        join official_account a on a.id = k.channel_oa_id
        join notification_watch w on k.status_since < w.passed_at
       where a.is_being_removed is not true and (k.muted_until > now()) is not true
    ), change as materialized (
      select channel_id, account_id, coalesce(sent.after, 'ok') as before, seen.status as after,
             case when level = 'ok' then 'recovery' else 'problem' end as kind,
             case when level = 'ok' then sent.problem else seen.problem end->>'reason' as reason,
             case when level <> 'ok' then seen.problem end as problem,
             case when level = 'ok' then sent.since else seen.status_since end as since,
             seen.status_since as changed_at, sent.notification_id as sent_id
        from seen join coverage using (organization_id) left join sent using (channel_id, account_id)
       where level <> coalesce(sent.after, 'ok')
    ), ready as materialized (
      select channel_id, kind, reason, count(*) as accounts, min(changed_at) as changed_at
        from change
       group by channel_id, kind, reason
      having min(changed_at) <= now() - $1 * interval '1 second'
         and $2 > (select count(*) from notification n
                    where n.notification_channel_id = change.channel_id and n.kind = change.kind and n.reason = change.reason
                      and n.created_at > now() - interval '1 hour')
    ), chosen as (
      select channel_id, kind, reason
        from (select *, sum(accounts) over (order by changed_at, channel_id, kind, reason) - accounts as before from ready) r
       where before < $3
    ), present as materialized (
      select id from official_account
       where id in (select account_id from change join chosen using (channel_id, kind, reason))
       order by id for key share skip locked
    ), part as materialized (
      select change.* from change join chosen using (channel_id, kind, reason) join present on present.id = account_id
    ), message as (
      insert into notification (notification_channel_id, kind, reason)
      select channel_id, kind, reason from part group by channel_id, kind, reason order by channel_id, kind, reason
      returning id, notification_channel_id, kind, reason
    ), ${MESSAGES}`

/** Reminds of problems that still have the status that was announced. $1 hours int; $2 int: ACCOUNTS_PER_STATEMENT */
const remindOfProblems = statement('remind-of-account-problems')`
    with ${CHANNELS}, lasting as materialized (
      select sent.*, k.status, k.problems->0 as now_problem, k.status_since
        from sent
        join channel c on c.id = sent.channel_id
        join official_account a on a.id = sent.account_id and (c.organization_id is null or c.organization_id = a.organization_id)
        join account_check k on k.channel_oa_id = a.id and k.status = sent.after
    ), due as (
      select channel_id
        from (select channel_id, sum(count(*)) over (order by channel_id) - count(*) as before
                from lasting group by channel_id having min(created_at) <= now() - $1 * interval '1 hour') d
       where before < $2
    ), present as materialized (
      select id from official_account
       where id in (select account_id from lasting join due using (channel_id)) order by id for key share skip locked
    ), part as materialized (
      select channel_id, account_id, status as before, status as after, now_problem as problem, status_since as since,
             notification_id as sent_id, 'reminder' as kind, null::text as reason
        from lasting join due using (channel_id) join present on present.id = account_id
       where created_at <= now() - interval '1 hour'
    ), message as (
      insert into notification (notification_channel_id, kind) select distinct channel_id, kind from part
      returning id, notification_channel_id, kind, reason
    ), ${MESSAGES}`

/** Returns false if a later pass has begun. */
export function announce(database: Transactions, pass: bigint): Promise<boolean> {
  return database.transaction(async (transaction) => {
    await takeLock(transaction, PASS_LOCK)
    await transaction.query(refuseNestedLoops)
    if ((await transaction.query(selectPass, [pass])).length === 0) return false
    const makeAll = async (made: Statement, limits: number[]) => {
      while (((await transaction.query<{ count: number }>(made, limits))[0]?.count ?? 0) > 0);
    }
    await transaction.query(forgetMuted)
    await makeAll(announceChanges, [GROUP_SECONDS, PER_HOUR_MAX, ACCOUNTS_PER_STATEMENT])
    await makeAll(remindOfProblems, [REMINDER_HOURS, ACCOUNTS_PER_STATEMENT])
    // Last, because it locks the row.
    await transaction.query(completePass)
    return true
  })
}
