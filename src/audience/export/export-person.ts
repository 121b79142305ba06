/**
 * What is stored about one person of one account, as one JSON object. docs/personal-data.md lists its parts and what it leaves out.
 * Lists are read by keyset pages, so the download of a slow client holds no snapshot. Planner idioms: docs/planner.md.
 */
import { INT64_MIN } from '../../http/path-id.ts'
import { type AccountId, toJson } from '../../ids.ts'
import { recordActivity } from '../../operators/activity.ts'
import type { Actor } from '../../operators/actor.ts'
import {
  type Queryable,
  type Row,
  type Statement,
  statement,
  type Transactions,
} from '../../postgres/statement.ts'
import { memberJson, withTrackedActivity } from '../member.ts'
import { withoutOthers } from './others.ts'

const PAGE_ROWS = 2_000
/** Bytes of payloads, after which a page of events ends. One payload may have 1 MiB. */
const PAGE_BYTES = 4 * 1024 * 1024

export interface Person {
  account: { id: AccountId; organizationId: bigint }
  userId: string
  /** null: not a member */
  memberId: bigint | null
  beginning: string
}

/** Null: nothing is stored about the person. */
export async function findPerson(
  database: Queryable,
  account: Person['account'],
  userId: string,
): Promise<Person | null> {
  const values = [account.id, userId]
  const [found] = await database.query<Pick<Person, 'memberId' | 'beginning'>>(selectSummary, values)
  return found === undefined ? null : { account, userId, ...found }
}

/** @param record stores the entry of the activity log, before the first part of a person */
export async function* personInAccounts(
  database: Queryable,
  accounts: Array<Person['account']>,
  userId: string,
  record: (person: Person) => Promise<void>,
): AsyncGenerator<{ text: string }> {
  let before = '['
  for (const account of accounts) {
    const person = await findPerson(database, account, userId)
    if (person === null) continue
    await record(person)
    yield { text: before }
    yield* personJson(database, person)
    before = ','
  }
  yield { text: before === '[' ? '[]\n' : ']\n' }
}

/** Yields the object in parts, each of which is read when the one before it is used. */
export async function* personJson(database: Queryable, person: Person): AsyncGenerator<{ text: string }> {
  const { account, userId, memberId, beginning } = person
  const byId = (list: Statement, ...values: unknown[]) => pagesById(database, list, [account.id, ...values])
  const lists = {
    edits: byId(selectEdits, memberId),
    events: eventPages(database, account.id, userId),
    deliveries: byId(selectDeliveries, userId, memberId),
    activity: byId(selectActivity, memberId && String(memberId)),
  }
  yield { text: beginning }
  for (const [name, pages] of Object.entries(lists)) {
    let before = `,"${name}":[`
    for await (const items of pages) {
      if (items.length === 0) continue
      yield { text: before + items.join(',\n') }
      before = ',\n'
    }
    yield { text: before === ',\n' ? ']' : `${before}]` }
  }
  yield { text: '}\n' }
}

/** Items of a list as JSON texts. A row without a text is not about the person. */
async function* pagesById(database: Queryable, list: Statement, values: unknown[]): AsyncGenerator<string[]> {
  for (let after: bigint | undefined = INT64_MIN; after !== undefined; ) {
    const position = [...values, after, PAGE_ROWS]
    const page: Array<{ id: bigint; json: string | null }> = await database.query(list, position)
    yield page.flatMap(({ json }) => json ?? [])
    after = page.at(-1)?.id
  }
}

async function* eventPages(
  database: Queryable,
  accountId: AccountId,
  userId: string,
): AsyncGenerator<string[]> {
  for (let after: { us: bigint; id: bigint } | undefined = { us: 0n, id: INT64_MIN }; after !== undefined; ) {
    const values = [accountId, userId, after.us, after.id, PAGE_ROWS, PAGE_BYTES]
    const page: EventRow[] = await database.query(selectEvents, values)
    yield page.map((row) => eventJson(row, userId))
    after = page.at(-1)
  }
}

/** The payload is embedded as text, because it is JSON that a JavaScript number or string may not hold exactly. */
function eventJson({ us: _, payload, ...row }: EventRow, userId: string): string {
  const content = payload === null ? 'null' : withoutOthers(row, userId, payload)
  return `${toJson(row).slice(0, -1)},"payload":${content}}`
}

/** Call it before the first byte. The user id is personal, so only the id of a member is recorded. */
export function recordPersonExport(
  database: Transactions,
  actor: Actor,
  { account: { id: accountId, organizationId }, memberId }: Person,
): Promise<void> {
  return recordActivity(database, actor, {
    action: 'member.exported',
    object: { kind: 'member', id: memberId },
    organizationId,
    accountId,
  })
}

const jsonTime = (sql: string) => `coalesce(to_json(iso(${sql}))::text, 'null')`

const FORMAT_VERSION = 1

/** $1 account id bigint; $2 user id text. The beginning of the object, with everything that is not a list. No row: nothing is stored. */
const selectSummary = statement('select-person-summary')`
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
                            ',"profileCheckedAt":', ${jsonTime('m.profile_checked_at')},
                            ',"firstFollowedAt":', ${jsonTime('m.first_followed_at')}, ',"touches":', (
                              select coalesce(json_agg(json_build_object(
                                       'at', iso(occurred_at), 'source', source, 'medium', medium, 'campaign', campaign,
                                       'receivedAt', iso(received_at)) order by occurred_at, key), '[]')
                                from member_touch where channel_oa_id = $1 and user_id = $2), '}') as member
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

const selectEdits = statement('select-person-edits')`
    select e.id, json_build_object('id', e.id::text, 'editedAt', iso(e.edited_at), 'fields', e.fields, 'changes', e.changes,
                                  'actor', e.actor, 'apiKeyId', e.api_key_id::text, 'clientId', c.client_id)::text as json
      from (select * from member_edit
             where channel_oa_id = $1 and member_id = $2 and id > $3 order by id limit $4) e
      left join lateral (select api_client_id from api_key where id = e.api_key_id offset 0) k on true
      left join lateral (select client_id from api_client where id = k.api_client_id offset 0) c on true
     order by e.id`

interface EventRow extends Row {
  id: bigint
  us: bigint
  source: string
  /** false: somebody else's event, in which the person joined or left */
  isSource: boolean
  payload: string | null
}

/**
 * $1 account id bigint; $2 user id text; $3, $4 microseconds and id of the event before the page bigint; $5 maximum number of events int;
 * $6 maximum bytes of payloads int. Without `offset 0`, PostgreSQL would read all events of the account in the order of receipt.
 */
const selectEvents = statement('select-person-events')`
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
 * The account's deliveries: those about the member or with an event of the person have a text. A condition on is_forwarded would let
 * PostgreSQL read all forwarded events. $1 account id bigint; $2 user id text; $3 member id bigint or null; $4 after this id; $5 limit int
 */
const selectDeliveries = statement('select-person-deliveries')`
    with events as materialized (
      select id, key from event where channel_oa_id = $1 and user_id = $2
       union all
      select id, key from event where channel_oa_id = $1 and other_user_ids @> array[$2]
    )
    select d.id,
           case when d.member_id = $3::bigint
                     or exists (select from unnest(d.event_keys) as carried (key) where carried.key in (select key from events))
                     or exists (select from unnest(d.event_ids) as carried (id) where carried.id in (select id from events))
                then json_build_object(
             'id', d.id::text, 'endpointId', d.endpoint_id::text, 'endpointName', p.name, 'type', coalesce(d.type, 'events'),
             'status', case when d.failed_at is null then 'pending' else 'failed' end, 'attempts', d.attempts,
             'response', d.status, 'createdAt', iso(d.created_at), 'lastAttemptAt', iso(d.last_attempt_at),
             'failedAt', iso(d.failed_at))::text end as json
      from (select * from endpoint_delivery where channel_oa_id = $1 and id > $4 order by id limit $5) d
      left join lateral (select name from endpoint where id = d.endpoint_id offset 0) p on true
     order by d.id`

const selectActivity = statement('select-person-activity')`
    select id, json_build_object('id', id::text, 'occurredAt', iso(occurred_at), 'action', action, 'actorKind', actor_kind,
                                'actor', actor)::text as json
      from activity
     where object_kind = 'member' and object_id = $2 and channel_oa_id = $1 and id > $3
     order by id
     limit $4`
