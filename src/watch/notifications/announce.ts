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

/** SQL: a change of it is announced. A warning about a quota lasts for days, and must not hide another problem of an account. */
export const announcedLevel = (status: string, problem: string) =>
  `case when ${problem}->>'reason' = 'quota_low' then 'quota_low' when ${status} in ('broken', 'degraded') then ${status} else 'ok' end`

const forgetMuted = statement('forget-muted-problems')`
    update notification_account t set is_current = false
      from account_check k where t.is_current and k.channel_oa_id = t.channel_oa_id and k.muted_until > now()`

/**
 * Accounts with one reason are one message. A status counts once an earlier pass saw it, too. An account whose check failed because of
 * LINE's outage stays as it was announced until it is checked again. The cause is this service if it refused deliveries, or if most of
 * the channel's accounts have the same problem of the network.
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
             ${announcedLevel('k.status', 'k.problems->0')} as level
        from account_check k
        join official_account a on a.id = k.channel_oa_id
        join notification_watch w on k.status_since < w.passed_at
       where a.is_being_removed is not true and (k.muted_until > now()) is not true
         and (k.problems->0->>'reason' = 'platform_unreachable' and (w.is_platform_down or k.checked_at < w.platform_since))
             is not true
    ), change as materialized (
      select channel_id, account_id, coalesce(sent.after, 'ok') as before, seen.status as after,
             case when level = 'ok' then 'recovery' else 'problem' end as kind,
             case when level = 'ok' then sent.problem else seen.problem end->>'reason' as reason,
             case when level <> 'ok' then seen.problem end as problem,
             case when level = 'ok' then sent.since else seen.status_since end as since,
             seen.status_since as changed_at, sent.notification_id as sent_id
        from seen join coverage using (organization_id) left join sent using (channel_id, account_id)
       where level <> ${announcedLevel('sent.after', 'sent.problem')}
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
      insert into notification (notification_channel_id, kind, reason, facts)
      select channel_id, kind, reason,
             case when kind = 'recovery' then '{}' else jsonb_build_object('cause', case
               when reason = 'deliveries_failed' then 'service'
               when reason in ('webhook_test_failed', 'platform_unreachable')
                and (select count(*) filter (where k.problems->0->>'reason' = part.reason) > count(*) / 2.0
                       from coverage join official_account a using (organization_id) join account_check k on k.channel_oa_id = a.id
                      where coverage.channel_id = part.channel_id) then 'service' end) end
        from part group by channel_id, kind, reason order by channel_id, kind, reason
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

/** Fewer accounts may have a fault of their own. If LINE responds to no check of more, this is one message about its outage. */
export const FAULTS_MIN = 3

/** An account with a fault is checked every ten minutes. Without any success, an outage lasts. $1 int: FAULTS_MIN */
const storePlatform = statement('store-platform-status')`
    update notification_watch w set is_platform_down = seen.is_down, platform_since = now()
      from (select count(*) filter (where fault is null) = 0
                   and count(*) filter (where fault is not null) >=
                       case when (select is_platform_down from notification_watch) then 1 else $1 end as is_down
              from account_check where checked_at > now() - interval '15 minutes') seen
     where w.is_platform_down <> seen.is_down or w.platform_since > now() + interval '1 minute'`

/**
 * The cause is the network of this service if, in 15 minutes, LINE delivered and no server outside the private network responded.
 *
 * $1 int: PER_HOUR_MAX
 */
const announcePlatform = statement('announce-platform-status')`
    with watch as materialized (
      select is_platform_down, platform_since from notification_watch where platform_since < passed_at
    ), channel as materialized (
      select c.id, c.organization_id, c.outage_since
        from notification_channel c join watch on is_platform_down <> (c.outage_since is not null)
       where c.status = 'active'
         and $1 > (select count(*) from notification n
                    where n.notification_channel_id = c.id
                      and n.kind = case when is_platform_down then 'platform_down' else 'platform_up' end
                      and n.created_at > now() - interval '1 hour')
         and exists (select from official_account a where c.organization_id is null or a.organization_id = c.organization_id)
       order by c.id for no key update of c skip locked
    ), changed as (
      update notification_channel c set outage_since = case when is_platform_down then platform_since end
        from channel, watch where c.id = channel.id
    ), signs as (
      select (select coalesce(max(last_at) > now() - interval '15 minutes', false) from delivery_hour
               where hour >= date_trunc('hour', now() - interval '15 minutes') and source = 'line')
             and not exists (select from endpoint_answer x join endpoint p on p.id = x.endpoint_id
                              where x.answered_at > now() - interval '15 minutes' and x.status is not null
                                and not p.allow_private_network) as is_ours)
    insert into notification (notification_channel_id, kind, facts)
    select id, case when is_platform_down then 'platform_down' else 'platform_up' end,
           jsonb_build_object(
             'accounts', (select count(*) from official_account a
                           where channel.organization_id is null or a.organization_id = channel.organization_id),
             'since', iso(coalesce(outage_since, platform_since)))
           || case when is_platform_down then jsonb_build_object('cause', case when is_ours then 'service' else 'line' end)
                   else jsonb_build_object('until', iso(platform_since)) end
      from channel, watch, signs`

/** Returns false if a later pass has begun. */
export function announce(database: Transactions, pass: bigint): Promise<boolean> {
  return database.transaction(async (transaction) => {
    await takeLock(transaction, PASS_LOCK)
    await transaction.query(refuseNestedLoops)
    if ((await transaction.query(selectPass, [pass])).length === 0) return false
    await transaction.query(storePlatform, [FAULTS_MIN])
    await transaction.query(announcePlatform, [PER_HOUR_MAX])
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
