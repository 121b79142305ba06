/** Changes of members on their way to endpoint_delivery: each `members` endpoint follows its account's delta feed. */
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import type { Statement } from '../postgres/statement.ts'

/** Changes that one endpoint takes in one step: some 20 ms. */
const CHANGES_PER_STEP = 500

/**
 * Moves each endpoint ahead by up to $1 changes. Changes of one member that have not been sent yet stay one row, so a member
 * that changed a hundred times is sent once. Another instance that moves the same endpoint is skipped.
 */
const takeChanges: Statement = {
  name: 'take-member-changes',
  text: `
    with follower as materialized (
      select id, channel_oa_id, events, change_position, change_member, first_change, open_changes from endpoint
       where format = 'members' and status = 'active' order by id for no key update skip locked
    ), found as materialized (
      select p.id as endpoint_id, p.channel_oa_id, p.events, c.*
        from follower p
        join lateral (
          select * from (
            (select m.change, m.id,
                    -- A member that changed after the transaction that created it is an update for an endpoint that
                    -- wants only these. A change in that transaction has the next number.
                    case when (m.created_change, m.id) > (p.change_position, p.change_member)
                          and is_committed_after(m.created_change, p.first_change, p.open_changes)
                          and (m.change <= m.created_change + 1 or p.events is null or 'member.created' = any (p.events))
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
      select channel_oa_id, endpoint_id, type, id, change from found where events is null or type = any (events)
          on conflict (channel_oa_id, endpoint_id, member_id) where member_id is not null do update
             set change = excluded.change, failed_at = null,
                 due_at = case when d.failed_at is null then d.due_at else now() end,
                 type = case when d.type = 'member.created' and excluded.type = 'member.updated' then d.type
                        else excluded.type end
    )
    update endpoint p set change_position = last.change, change_member = last.id
      from (select distinct on (endpoint_id) endpoint_id, change, id from found
             order by endpoint_id, change desc, id desc) last
     where p.id = last.endpoint_id`,
}

/** Everything below change_horizon() is visible, so no change can appear before the newest that was taken. */
export async function takeMemberChanges(connection: PinnedConnection): Promise<void> {
  await connection.pipelineIdempotent([{ statement: takeChanges, values: [CHANGES_PER_STEP] }])
}
