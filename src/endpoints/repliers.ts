/** Which endpoints receive the messages of a person, and which of them may reply: now, and after a change that is not made yet. */
import { type Condition, holdsFor } from '../audience/condition.ts'
import { SCAN_MAX } from '../audience/list-statements.ts'
import { AppError } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { type AccountId, toJson } from '../ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { EndpointSettings } from './settings.ts'

type EndpointOfPerson = { id: bigint; name: string; status: string; mayReply: boolean }

const selectOfPerson = statement('select-endpoints-of-person')`
    select p.id, p.name, p.status, r.may_reply as "mayReply"
      from endpoints_of(array[$1::bigint], array['message'], array[$2::text]) r
      join endpoint p on p.id = r.endpoint_id
     order by p.id`

export function listEndpointsOfPerson(
  database: Queryable,
  accountId: AccountId,
  userId: string,
): Promise<EndpointOfPerson[]> {
  return database.query<EndpointOfPerson>(selectOfPerson, [accountId, userId])
}

/** Instead of an id: an endpoint that is not added yet. Of the same priority, it comes last. */
export const NEW_ENDPOINT_ID = INT64_MAX

/** People to whom another endpoint would reply. Null: no endpoint; a new endpoint has no name. */
type Move = {
  from: bigint | null
  fromName: string | null
  to: bigint | null
  toName: string | null
  people: number
}

/**
 * Counts members by the endpoint that may reply now and the one that may reply after the change. $2 after this member bigint;
 * $3 members int; the changed endpoint: $4 id bigint, $5 condition jsonb or null, $6 replies boolean, $7 priority int
 */
const countReplies = statement('count-replies-by-endpoint')`
    with now as materialized (
      select id, name, condition, replies, priority from endpoint
       where channel_oa_id = $1 and format = 'line' and receives_kind(events, 'message')
    ), changed as materialized (
      select id, case id when $4 then $5::jsonb else condition end as condition, case id when $4 then $6 else replies end as replies,
             case id when $4 then $7 else priority end as priority
        from now
       union all
      select $4, $5::jsonb, $6, $7 where $4 = ${String(NEW_ENDPOINT_ID)}
    )
    select judged."from", judged."to", (select name from now where id = judged."from") as "fromName",
           (select name from now where id = judged."to") as "toName", count(*)::int as people,
           max(max(m.id)) over () as "lastId", (sum(count(*)) over ())::int as candidates
      from (select * from audience_member where channel_oa_id = $1 and id > $2 order by id limit $3) m
     cross join lateral (
       select (select id from now e where replies and ${holdsFor('e.condition')} order by priority, id limit 1) as "from",
              (select id from changed e where replies and ${holdsFor('e.condition')} order by priority, id limit 1) as "to"
       offset 0) judged
     group by 1, 2`

type Counted = Move & { lastId: bigint; candidates: number }

export interface Rehearsal {
  members: number
  /** the most people first */
  moves: Move[]
}

/** A proxy in front of the console waits at least 30 s. */
const REHEARSAL_MAX_MS = 20_000

/** Throws `unavailable` after REHEARSAL_MAX_MS. @param settings after the change, with a condition as checkCondition returns it */
export async function rehearse(
  database: Queryable,
  { id, accountId }: { id: bigint; accountId: AccountId },
  {
    condition,
    replies,
    priority,
  }: Pick<EndpointSettings, 'replies' | 'priority'> & { condition: Condition | null },
): Promise<Rehearsal> {
  const changed = [id, condition && toJson(condition), replies, priority]
  const deadline = performance.now() + REHEARSAL_MAX_MS
  const moves = new Map<string, Move>()
  let members = 0
  for (let after: bigint | null = INT64_MIN; after !== null; ) {
    const values: unknown[] = [accountId, after, SCAN_MAX, ...changed]
    const rows: Counted[] = await database.query<Counted>(countReplies, values)
    for (const { from, fromName, to, toName, people } of rows) {
      members += people
      if (from === to) continue
      const key = `${from} ${to}`
      moves.set(key, { from, fromName, to, toName, people: people + (moves.get(key)?.people ?? 0) })
    }
    const last: Counted | undefined = rows[0]
    after = last === undefined || last.candidates < SCAN_MAX ? null : last.lastId
    if (performance.now() > deadline)
      throw new AppError('unavailable', {
        message: 'The account has too many members to count them in time.',
      })
  }
  return { members, moves: [...moves.values()].sort((a, b) => b.people - a.people) }
}
