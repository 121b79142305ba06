/**
 * An outage of LINE is one incident: as long as LINE responds to no check of any account, channels receive one message about it and
 * none about single accounts.
 */
import { type Queryable, statement } from '../../postgres/statement.ts'

/** Fewer accounts may have a fault of their own. */
export const FAULTS_MIN = 3

/**
 * Of the checks of the last 15 minutes: an account with a fault is checked every ten minutes. Without any success, an outage lasts.
 *
 * $1 int: FAULTS_MIN
 */
const storePlatform = statement('store-platform-status')`
    update notification_watch w set is_platform_down = seen.is_down, platform_since = now()
      from (select count(*) filter (where fault is null) = 0
                   and count(*) filter (where fault is not null) >=
                       case when (select is_platform_down from notification_watch) then 1 else $1 end as is_down
              from account_check where checked_at > now() - interval '15 minutes') seen
     where w.is_platform_down <> seen.is_down or w.platform_since > now() + interval '1 minute'`

/**
 * A status of LINE counts once an earlier pass saw it, too. Channels without accounts are skipped. An outage that ended before its
 * message was sent is not mentioned.
 *
 * The cause is the network of this service if, in the 15 minutes, LINE delivered and no server outside the private network responded.
 *
 * $1 int: messages of a channel in an hour
 */
const announceStatus = statement('announce-platform-status')`
    with watch as materialized (
      select is_platform_down, platform_since from notification_watch where platform_since < passed_at
    ), withdrawn as (
      delete from notification using watch
       where kind = 'platform_down' and not is_platform_down and attempts = 0 and sent_at is null and failed_at is null
      returning notification_channel_id as id
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
             'since', to_char(coalesce(outage_since, platform_since) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
           || case when is_platform_down then jsonb_build_object('cause', case when is_ours then 'service' else 'line' end)
                   else jsonb_build_object('until', to_char(platform_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) end
      from channel, watch, signs
     where id not in (select id from withdrawn)`

export async function announcePlatform(transaction: Queryable, perHourMax: number): Promise<void> {
  await transaction.query(storePlatform, [FAULTS_MIN])
  await transaction.query(announceStatus, [perHourMax])
}
