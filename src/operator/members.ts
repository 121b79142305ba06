/** One member with its timeline, and the size of an audience. */
import type { AccountId } from '../accounts/account.ts'
import { type Member, memberJson, withTrackedActivity } from '../audience/member.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'

/**
 * A user id takes precedence over an equal member id.
 *
 * $1 account id bigint
 * $2 user id text
 * $3 member id bigint or null
 */
const selectMember = `
  select ${memberJson} as json
    from audience_member m ${withTrackedActivity}
   where m.channel_oa_id = $1 and (m.user_id = $2 or m.id = $3)
   order by m.user_id = $2 desc
   limit 1`

/** Finds a member by its user id, or else by its id. Returns null if neither matches. */
export async function findMember(
  database: Queryable,
  accountId: AccountId,
  userId: string,
  id: bigint | null,
): Promise<Member | null> {
  const [found] = await database.query<{ json: string }>(selectMember, [accountId, userId, id])
  return found === undefined ? null : JSON.parse(found.json)
}

export type TimelineEntry = {
  at: string
  /** null: an edit */
  receivedAt: string | null
  /** the event's source, or `client` for an edit */
  source: string
  kind: string
  /** what the event or the edit did to the member */
  effect: string
  eventId: bigint | null
}

/**
 * The newest follow or unfollow by its own time decides the relationship, so events are ordered by when they happened.
 *
 * $1 account id bigint
 * $2 user id text
 * $3 member id bigint
 * $4 maximum number of rows int
 */
const selectTimeline = `
  select to_char(entry.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at,
         to_char(entry.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "receivedAt",
         entry.source, entry.kind, entry.effect, entry.event_id as "eventId"
    from (
      (select occurred_at as at, received_at, source, kind,
              case when failure is not null then 'not applied: ' || failure
                   when user_id is distinct from $2 then 'named as joined or left'
                   when kind = 'follow' then 'relationship following'
                   when kind = 'unfollow' then 'relationship blocked'
                   when source = 'mbox' then 'conversation'
                   when source = 'tracking' then 'activity'
                   else 'seen'
              end as effect,
              id as event_id
         from stored_event
        where channel_oa_id = $1 and (user_id = $2 or other_user_ids @> array[$2])
        order by occurred_at desc, id desc
        limit $4)
      union all
      (select e.edited_at, null, 'client', 'edit',
              array_to_string(e.fields, ', ') || ' by '
                || coalesce('client ' || c.client_id, 'key ' || e.api_key_id, 'a command or another program'),
              null
         from member_edit e
         left join api_key k on k.id = e.api_key_id
         left join api_client c on c.id = k.api_client_id
        where e.channel_oa_id = $1 and e.member_id = $3
        order by e.id desc
        limit $4)
    ) as entry
   order by entry.at desc
   limit $4`

/** The events and edits that made the member what it is, newest first. */
export function memberTimeline(
  database: Queryable,
  accountId: AccountId,
  { id, userId }: Pick<Member, 'id' | 'userId'>,
  limit: number,
): Promise<TimelineEntry[]> {
  return database.query(selectTimeline, [accountId, userId, id, limit])
}

/** $1 account id bigint */
const selectMemberCount = `
  select count(*) from audience_member where channel_oa_id = $1`

/** A count of millions may exceed a request's time limit, so it runs in its own session. */
export async function countMembers(database: Database, accountId: AccountId): Promise<number> {
  const [row] = await database.session((session) =>
    session.query<{ count: bigint }>(selectMemberCount, [accountId]),
  )
  return Number(row?.count ?? 0)
}
