/**
 * What is stored about one person of one account. Lists are read by keyset pages, in the order of their ids or of receipt. No page
 * holds a snapshot, so the download of a slow client delays no VACUUM. Planner idioms: docs/planner.md.
 */

import { type Row, statement } from '../../postgres/statement.ts'
import { memberJson, withTrackedActivity } from '../member.ts'

const jsonTime = (sql: string) => `coalesce(to_json(iso(${sql}))::text, 'null')`

/** Raised when a part changes its meaning or disappears. */
const FORMAT_VERSION = 1

/** $1 account id bigint; $2 user id text. The beginning of the object, with everything that is not a list. No row: nothing is stored. */
export const selectSummary = statement('select-person-summary')`
    select found.id as "memberId",
           concat('{"formatVersion":${FORMAT_VERSION},"generatedAt":"', iso(now()), '","account":',
                  jsonb_build_object('id', a.id::text, 'name', a.name, 'organizationId', a.organization_id::text),
                  ',"userId":', to_json($2::text), E',\n"member":', coalesce(found.member, 'null'),
                  E',\n"trackedActivity":', coalesce(tracked.activity, 'null'), E',\n"erasures":',
                  case when erased.erased_at is null and not pending.is_pending then '[]'
                       else jsonb_build_array(jsonb_build_object(
                         'erasedAt', iso(erased.erased_at), 'status', case when pending.is_pending then 'pending' else 'done' end)) end
           ) as beginning
      from official_account a
     cross join lateral (
        select exists (select from pending_erasure where channel_oa_id = $1 and user_id = $2) as is_pending) pending
      left join lateral (
        select m.id, concat(left(${memberJson}, -1), ',"relationshipAt":', ${jsonTime('m.relationship_at')},
                            ',"profileDueAt":', ${jsonTime('m.profile_due_at')},
                            ',"profileCheckedAt":', ${jsonTime('m.profile_checked_at')}, '}') as member
          from audience_member m ${withTrackedActivity}
         where m.channel_oa_id = $1 and m.user_id = $2 offset 0) found on true
      left join lateral (
        select concat('{"eventCount":', event_count, ',"firstSeenAt":', ${jsonTime('first_seen_at')},
                      ',"lastSeenAt":', ${jsonTime('last_seen_at')}, ',"receivedAt":', ${jsonTime('received_at')}, '}') as activity
          from tracked_activity where channel_oa_id = $1 and user_id = $2 offset 0) tracked on true
      left join lateral (
        select erased_at from erased_person
         where channel_oa_id = $1 and person_hash = person_hash(a.person_key, $2) offset 0) erased on true
     where a.id = $1
       and (found.id is not null or tracked.activity is not null or erased.erased_at is not null or pending.is_pending
            or exists (select from event where channel_oa_id = $1 and user_id = $2)
            or exists (select from tracking_event where channel_oa_id = $1 and user_id = $2)
            or exists (select from event where channel_oa_id = $1 and other_user_ids @> array[$2]))`

/** $1 account id bigint; $2 member id bigint; $3 after this id bigint; $4 maximum number of rows int */
export const selectEdits = statement('select-person-edits')`
    select e.id, iso(e.edited_at) as "editedAt", e.fields, e.changes, e.actor, e.api_key_id as "apiKeyId",
           c.client_id as "clientId"
      from (select * from member_edit
             where channel_oa_id = $1 and member_id = $2 and id > $3 order by id limit $4) e
      left join lateral (select api_client_id from api_key where id = e.api_key_id offset 0) k on true
      left join lateral (select client_id from api_client where id = k.api_client_id offset 0) c on true
     order by e.id`

export interface PersonEventRow extends Row {
  id: bigint
  us: bigint
  source: string
  /** false: somebody else's event, in which the person joined or left */
  isSource: boolean
  payload: string | null
}

/**
 * event_user, tracking_event_user and event_other_users find the person's events, which are then sorted. Without `offset 0`,
 * PostgreSQL would read all events of the account in the order of receipt.
 *
 * $1 account id bigint; $2 user id text; $3, $4 the position after which the page begins: microseconds bigint, id bigint;
 * $5 maximum number of events int; $6 maximum bytes of payloads int
 */
export const selectPersonEvents = statement('select-person-events')`
    select id, us, source, kind, iso(occurred_at) as "occurredAt", iso(received_at) as "receivedAt",
           group_id as "groupId", message_id as "messageId", failure, is_source as "isSource", payload
      from (
        select *, sum(octet_length(coalesce(payload, ''))) over (order by received_at, id rows unbounded preceding)
                    - octet_length(coalesce(payload, '')) as bytes_before
          from (
            select *, (extract(epoch from received_at) * 1000000)::bigint as us
              from (
                (select id, source, kind, occurred_at, received_at, group_id, message_id, failure, true as is_source, payload
                   from event where channel_oa_id = $1 and user_id = $2 offset 0)
                union all
                (select id, 'tracking', kind, occurred_at, received_at, null, null, null, true, payload
                   from tracking_event where channel_oa_id = $1 and user_id = $2 offset 0)
                union all
                (select id, source, kind, occurred_at, received_at, group_id, message_id, failure, false, payload
                   from event
                  where channel_oa_id = $1 and other_user_ids @> array[$2] and user_id is distinct from $2 offset 0)
              ) found
             where (received_at, id) > (timestamptz 'epoch' + $3::bigint * interval '1 microsecond', $4::bigint)
             order by received_at, id
             limit $5) e) page
     where bytes_before < $6::int
     order by us, id`

/**
 * A page of the account's deliveries, as one row: those about the member, and those that carry an event of the person. A condition
 * on is_forwarded would let PostgreSQL read all forwarded events of the account.
 *
 * $1 account id bigint; $2 user id text; $3 member id bigint or null; $4 after this id bigint; $5 maximum number of deliveries int
 */
export const selectPersonDeliveries = statement('select-person-deliveries')`
    with events as materialized (
      select id, key from event where channel_oa_id = $1 and user_id = $2
       union all
      select id, key from event where channel_oa_id = $1 and other_user_ids @> array[$2]
    )
    select max(d.id) as last, jsonb_agg(jsonb_build_object(
             'id', d.id::text, 'endpointId', d.endpoint_id::text, 'endpointName', p.name, 'type', coalesce(d.type, 'events'),
             'status', case when d.failed_at is null then 'pending' else 'failed' end, 'attempts', d.attempts,
             'response', d.status, 'createdAt', iso(d.created_at), 'lastAttemptAt', iso(d.last_attempt_at),
             'failedAt', iso(d.failed_at)) order by d.id)
             filter (where d.member_id = $3::bigint
                        or exists (select from unnest(d.event_keys) as carried (key) where carried.key in (select key from events))
                        or exists (select from unnest(d.event_ids) as carried (id) where carried.id in (select id from events)))
             as deliveries
      from (select * from endpoint_delivery where channel_oa_id = $1 and id > $4 order by id limit $5) d
      left join lateral (select name from endpoint where id = d.endpoint_id offset 0) p on true`

/** $1 account id bigint; $2 member id text; $3 after this id bigint; $4 maximum number of rows int */
export const selectPersonActivity = statement('select-person-activity')`
    select id, iso(occurred_at) as "occurredAt", action, actor_kind as "actorKind", actor
      from activity
     where object_kind = 'member' and object_id = $2 and channel_oa_id = $1 and id > $3
     order by id
     limit $4`
