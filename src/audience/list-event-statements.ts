/** The statements of list-events.ts. */
import { statement } from '../postgres/statement.ts'

const at = (parameter: string) => `timestamptz 'epoch' + ${parameter}::bigint * interval '1 microsecond'`

/**
 * Parameters of all statements: $1 events to examine int; $2 organization ids bigint[], null: all; $3 kind text, $4 user id text,
 * $5 reason text, $6 whether it was set aside boolean, null: any; $7 maximum number of events int; $8 and $9 received from and before,
 * in microseconds bigint; $10 and $11 the position before which the page begins: microseconds and id, bigint. Statements in the order
 * of ids keep $10 as it is.
 */
const RANGE = `received_at >= ${at('$8')} and received_at < ${at('$9')}`
const COLUMNS =
  'id, channel_oa_id, source, kind, occurred_at, received_at, user_id, other_user_ids, failure, set_aside'
const BY_RECEIPT = `${COLUMNS}, (extract(epoch from received_at) * 1000000)::bigint as us, id as position`
const BY_ID = `${COLUMNS}, $10::bigint as us, id as position`
const NEWEST_RECEIVED = `${RANGE} and received_at <= ${at('$10')} and (received_at, id) < (${at('$10')}, $11::bigint)
          order by received_at desc, id desc limit $1`
const NEWEST = `${RANGE} and id < $11 order by id desc limit $1`

/** The events that match, and the position of the last one examined if there may be more. */
const MATCHING = `
    select next.us as "nextUs", next.position as "nextPosition", e.us, e.position, e.id, e.channel_oa_id as "accountId",
           e.name as "accountName", e.source, e.kind, iso(e.occurred_at) as "occurredAt", iso(e.received_at) as "receivedAt",
           e.user_id as "userId", e.failure, e.set_aside as "setAside"
      from (select) page
      left join (select us, position from examined order by us desc, position desc limit 1 offset $1::int - 1) next on true
      left join (
        select e.*, a.name
          from examined e
          join lateral (select name, organization_id from official_account where id = e.channel_oa_id offset 0) a
            on visible(a.organization_id, $2)
         where e.id is not null and ($3::text is null or e.kind = $3) and ($5::text is null or e.failure = $5)
           and ($4::text is null or e.user_id = $4 or e.other_user_ids @> array[$4])
           and ($6::boolean is null or e.failure is not null and (e.set_aside is not null) = $6)
         order by e.us desc, e.position desc limit $7::int) e on true
     order by e.us desc, e.position desc`

/** Driven by event_account and tracking_event_account. $12 account ids bigint[] */
export const selectOfAccounts = statement('events-of-accounts')`
    with examined as materialized (
      select ${BY_RECEIPT}
        from unnest($12::bigint[]) account
       cross join lateral (
         select ${COLUMNS} from stored_event
          where channel_oa_id = account and received_at > '-infinity' and ${NEWEST_RECEIVED}) e
       order by received_at desc, id desc limit $1
    ) ${MATCHING}`

/**
 * Driven by event_user and event_other_users. The person's events are sorted. `offset 0` keeps the planner from combining these indexes
 * with the one of times. $12 account ids bigint[], null: all
 */
export const selectOfPerson = statement('events-of-person')`
    with examined as materialized (
      select ${BY_RECEIPT}
        from (select ${COLUMNS} from stored_event
               where (user_id = $4 or other_user_ids @> array[$4]) and ($12::bigint[] is null or channel_oa_id = any ($12))
              offset 0) e
       where ${NEWEST_RECEIVED}
    ) ${MATCHING}`

/** Driven by event_failure or event_set_aside. $12 account ids bigint[] */
export const selectFailedOfAccounts = statement('failed-events-of-accounts')`
    with examined as materialized (
      select ${BY_ID}
        from unnest($12::bigint[]) account
       cross join lateral (
         (select ${COLUMNS} from event
           where $6 = false and channel_oa_id = account and failure is not null and set_aside is null and ${NEWEST})
         union all
         (select ${COLUMNS} from event where $6 and channel_oa_id = account and set_aside is not null and ${NEWEST})) e
       order by id desc limit $1
    ) ${MATCHING}`

/** Driven by event_failure_id, whose condition it repeats. */
export const selectFailed = statement('failed-events')`
    with examined as materialized (select ${BY_ID} from event where failure >= '' and ${NEWEST}) ${MATCHING}`

/**
 * Driven by the primary key of event_key, and then by event_account: one transaction stores a key and its event. The position is that of
 * an account. $12 account ids bigint[], null: all; $13 key uuid
 */
export const selectByKey = statement('events-by-key')`
    with examined as materialized (
      select e.*, a.id as channel_oa_id, $10::bigint as us, a.id as position
        from (select id
                from (select unnest($12::bigint[]) as id
                       union all
                      (select id from official_account where $12 is null and id < $11 order by id desc limit $1)) account
               where id < $11 order by id desc limit $1) a
        left join lateral (
          select received_at from event_key where channel_oa_id = a.id and key = $13 offset 0) k on true
        left join lateral (
          select id, source, kind, occurred_at, received_at, user_id, other_user_ids, failure, set_aside from event
           where channel_oa_id = a.id and received_at > '-infinity' and received_at = k.received_at and key = $13 and ${RANGE}
          offset 0) e on true
    ) ${MATCHING}`

/** Driven by the BRIN indexes. Each id of the window is examined. */
export const selectWindow = statement('events-in-window')`
    with examined as materialized (
      select ${BY_ID} from stored_event where id >= $11::bigint - $1::int and id < $11 and ${RANGE}
    ) ${MATCHING}`

/** $1 and $2 first id, and the id after the last one, bigint; $3 and $4 received from and before, in microseconds bigint */
export const hasEvents = statement('has-events')`
    select exists (
      select from stored_event
       where id >= $1 and id < $2 and received_at >= ${at('$3')} and received_at < ${at('$4')}) as "hasEvents"`

export const selectLastId = statement('last-event-id')`
    select pg_sequence_last_value(pg_get_serial_sequence('event', 'id')::regclass) as id`

/** The accounts of few organizations. $1 organization ids bigint[]; $2 maximum number of rows int */
export const selectAccountIds = statement('account-ids-of-organizations')`
    select id from official_account where organization_id = any ($1) limit $2`
