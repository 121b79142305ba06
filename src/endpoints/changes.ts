/**
 * Queues changes of members in endpoint_delivery. Each `members` endpoint follows the delta feed of its account. Endpoints take turns
 * in the order of their ids, with a bounded number of changes each. Planner idioms: docs/planner.md.
 */
import { every, type Repetition } from '../every.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { type Row, statement, type Transactions } from '../postgres/statement.ts'

const CHANGES_PER_ENDPOINT = 100
/** Endpoints with changes that one step moves: 20 × 100 rows take about 80 ms. */
const MOVED_PER_STEP = 20
/** Endpoints that one step examines, with two index probes each. */
const EXAMINED_PER_STEP = 200
/** Pause after a round without changes. Changes of members are sent within 2 s. */
const PAUSE_MS = 500
/** The pause as a multiple of the round: with many endpoints, such rounds use a fifth of one connection at most. */
const PAUSE_PER_ROUND = 4
const RETRY_MS = 1_000

/**
 * Moves endpoints ahead by up to $1 changes each. Unsent changes of one member share one row, so a member that changed a hundred
 * times is sent once. An endpoint that another instance is moving is skipped. $2 bigint: the endpoint after which to begin;
 * $3 int: how many are examined; $4 int: how many are moved.
 */
const takeChanges = statement('take-member-changes')`
    with examined as materialized (
      select id from endpoint
       where format = 'members' and status = 'active' and id > $2 order by id limit $3
    ), follower as materialized (
      select p.id, p.channel_oa_id, p.events, p.change_position, p.change_member, p.first_change, p.open_changes
        from endpoint p
       -- An array, because the plan of a semi-join may scan the index of all endpoints.
       where p.id = any (array(
         select f.id from examined x
           join lateral (select * from endpoint where id = x.id offset 0) f on true
          -- In the order of the index, because the plan of an "exists" may use another index.
          where (select m.id from audience_member m
                         where m.channel_oa_id = f.channel_oa_id and (m.change, m.id) > (f.change_position, f.change_member)
                           and m.change < change_horizon() and is_committed_after(m.change, f.first_change, f.open_changes)
                         order by m.change, m.id limit 1) is not null
             or (select e.id from erased_member e
                         where e.channel_oa_id = f.channel_oa_id and (e.change, e.id) > (f.change_position, f.change_member)
                           and e.change < change_horizon() and is_committed_after(e.change, f.first_change, f.open_changes)
                         order by e.change, e.id limit 1) is not null
          order by f.id limit $4))
       order by p.id for no key update skip locked
    ), found as materialized (
      select p.id as endpoint_id, p.channel_oa_id, p.events, c.*
        from follower p
        join lateral (
          select * from (
            (select m.change, m.id,
                    -- If the endpoint receives no member.created events, a member that changed after the transaction that created
                    -- it is an update. A change within that transaction has the next number.
                    case when (m.created_change, m.id) > (p.change_position, p.change_member)
                          and is_committed_after(m.created_change, p.first_change, p.open_changes)
                          and (m.change <= m.created_change + 1 or receives_kind(p.events, 'member.created'))
                         then 'member.created' else 'member.updated' end as type
               from audience_member m
              where m.channel_oa_id = p.channel_oa_id and (m.change, m.id) > (p.change_position, p.change_member)
                and m.change < change_horizon() and is_committed_after(m.change, p.first_change, p.open_changes)
              order by m.change, m.id limit $1)
             union all
            (select e.change, e.id, 'member.erased' from erased_member e
              where e.channel_oa_id = p.channel_oa_id and (e.change, e.id) > (p.change_position, p.change_member)
                and e.change < change_horizon() and is_committed_after(e.change, p.first_change, p.open_changes)
                and not exists (select from audience_member m where m.channel_oa_id = e.channel_oa_id and m.id = e.id)
              order by e.change, e.id limit $1)
          ) either order by change, id limit $1) c on true
    ), queued as (
      insert into endpoint_delivery as d (channel_oa_id, endpoint_id, type, member_id, change)
      select channel_oa_id, endpoint_id, type, id, change from found where receives_kind(events, type)
          on conflict (channel_oa_id, endpoint_id, member_id) where member_id is not null do update
             -- The end of a resend deletes its own rows, and must not delete a change.
             set change = excluded.change, job_id = null, failed_at = null,
                 due_at = case when d.failed_at is null then d.due_at else now() end,
                 type = case when d.type = 'member.created' and excluded.type = 'member.updated' then d.type
                        else excluded.type end
    ), moved as (
      update endpoint p set change_position = last.change, change_member = last.id
        from (select distinct on (endpoint_id) endpoint_id, change, id from found
               order by endpoint_id, change desc, id desc) last
       where p.id = last.endpoint_id
      returning p.id
    )
    select case when (select count(*) from follower) = $4 then (select max(id) from follower)
                else (select max(id) from examined) end as "lastId",
           array(select id from moved) as moved`

/** Gives each endpoint one turn per round. @param onMoved receives the endpoints with new deliveries */
export function followFeeds(database: Transactions, onMoved: (endpointIds: bigint[]) => void): Repetition {
  return every('member changes', RETRY_MS, async (signal) => {
    const startedAtMs = performance.now()
    let hasMoved = false
    let lastId: bigint | null = INT64_MIN
    while (lastId !== null && !signal.aborted) {
      const values: unknown[] = [CHANGES_PER_ENDPOINT, lastId, EXAMINED_PER_STEP, MOVED_PER_STEP]
      // All changes below change_horizon() are visible, so no change can appear before the newest one that was taken.
      const [row] = (await database.query<Row>(takeChanges, values)) as [Step]
      if (row.moved.length > 0) onMoved(row.moved.map(BigInt))
      hasMoved ||= row.moved.length > 0
      lastId = row.lastId
    }
    return hasMoved ? 0 : Math.max(PAUSE_MS, PAUSE_PER_ROUND * (performance.now() - startedAtMs))
  })
}

/** `lastId` is null at the end of a round. `moved` is a bigint[] of a result of pg. */
type Step = { lastId: bigint | null; moved: string[] }
