/**
 * The statement of the delta feed: members and tombstones in the order of their change numbers (migrations/0002-audience.sql). It
 * takes the parameters of the other lists (list-statements.ts), and
 *
 *   $12 bigint  after this change number; null: on the first page
 *   $13 bigint  before this change number: the changes after it began after the walk
 *   $14 bigint  the horizon at the first page: changes before this number had ended
 *   $15 bigint  the time of the first page by the primary's clock, microseconds since 1970
 *   $16 bigint  on the first page, updatedSince, milliseconds since 1970
 *
 * Changes between $14 and $13 may be committed during the walk, behind its position. The next walk returns them, because it begins at
 * a checkpoint that is not above the horizon of this walk. The client requests it with the latest time in this walk. So changes above
 * the horizon that were made after the first page are left to the next walk.
 *
 * A page is one row: its lines, their number, and the position of the last candidate (null: the walk is over). `isLost`: the client
 * may have read changes that a restore of the database has lost, so it must begin again. Planner idioms: docs/planner.md.
 */
import { PREPARE_WRITES } from '../postgres/pool/connection-settings.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { FILTERS, type List, SCAN_MAX } from './list-statements.ts'
import { erasedCsv, erasedJson, LINE_ID, memberCsv, memberJson, withTrackedActivity } from './member.ts'

/**
 * Driven by audience_member_change and erased_member_change. The last candidate is returned even if it does not match, because the next
 * page begins after it. Without statistics, the planner would find an id by scanning the account, so members are found by ctid.
 *
 * $4 is the page size plus one. If that many rows are found, the next page begins after the last member of this one. Otherwise it begins
 * after the last candidate, if the scan reached its limit.
 */
const feed = (format: string, member: string, erased: string, separator: string) =>
  statement(`audience-by-change-${format}`)`
    with requested as (
      -- The gap between checkpoints is up to 30 s: an interval of 10 s, and 20 s for a late one. Within a gap, the database's clock may
      -- step back without a trace, so a feed begins a whole gap before the requested time. A page of the previous walk from a replica
      -- may have lacked the changes of 30 s (maximum of READ_MAX_LAG_MS). 30 s + 30 s = 60 s.
      select timestamptz 'epoch' + $16::bigint * interval '1 millisecond' - interval '60 seconds' as since
    ), range as materialized (
      select coalesce($12::bigint,
                      -- A time in the future has a checkpoint near it only if the clock stepped back. Otherwise it was invented, and it is
                      -- unknown what the client has read, so the feed begins at the beginning.
                      (select case when since < greatest(clock_timestamp(), before.marked_at + interval '1 minute') then least(
                                before.change,
                                -- A clock that jumped ahead and was corrected shows the same times again, with higher change numbers. The
                                -- first of the earlier checkpoints may be up to 30 s after the requested time: 60 s + 30 s = 90 s. If the
                                -- clock did not jump, checkpoints after it have higher numbers, and this changes nothing.
                                (select min(near.change) from change_mark near
                                  where near.marked_at > since and near.marked_at <= since + interval '90 seconds')) - 1 end
                         from change_mark before
                        where before.marked_at <= since
                        order by before.marked_at desc limit 1),
                      -1) as after_change,
             coalesce($13::bigint, change_limit()) as until_change,
             coalesce($14::bigint, change_horizon()) as horizon,
             -- The clock of a replica may be ahead of the primary's. The last replayed commit has the primary's time.
             coalesce(timestamptz 'epoch' + $15::bigint * interval '1 microsecond',
                      least(clock_timestamp(), case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end)) as began_at,
             -- The client has read changes up to this time: that of the first page, or updatedSince.
             coalesce(timestamptz 'epoch' + $15::bigint * interval '1 microsecond',
                      timestamptz 'epoch' + $16::bigint * interval '1 millisecond') as read_until
        from requested
    ), candidate as (
      select *, row_number() over (order by change, id) = ${SCAN_MAX} as is_last
        from (
          (select m.change, m.id, m.ctid as place, null::timestamptz as at, false as is_erased,
                  (m.organization_id = $2 and ${FILTERS}
                    and (m.change < (select horizon from range) or m.updated_at <= (select began_at from range))) is true as is_match
             from audience_member m
            where m.channel_oa_id = $1
              and (m.change, m.id) > ((select after_change from range), $3)
              and m.change < (select until_change from range)
            order by m.change, m.id limit ${SCAN_MAX})
           union all
          -- A tombstone does not match if another program has loaded a member with its id again.
          (select e.change, e.id, null, e.deleted_at, true,
                  e.organization_id = $2
                    and e.id is distinct from (select id from audience_member
                                                where channel_oa_id = $1 and id >= e.id order by id limit 1)
                    and (e.change < (select horizon from range) or e.deleted_at <= (select began_at from range))
             from erased_member e
            where e.channel_oa_id = $1
              and (e.change, e.id) > ((select after_change from range), $3)
              and e.change < (select until_change from range)
            order by e.change, e.id limit ${SCAN_MAX})
           order by change, id limit ${SCAN_MAX}
        ) merged
    ), found as (
      select c.change, c.id, c.is_last,
             case when not c.is_match then null when c.is_erased then ${erased} else ${member} end as line
        from candidate c
        left join lateral (select * from audience_member where ctid = c.place and c.is_match offset 0) m on true
        ${withTrackedActivity}
       where c.is_match or c.is_last
       order by c.change, c.id limit $4
    ), ended as (
      select *, case when count(*) over () = $4 then position = $4 - 1 else is_last end as ends_page
        from (select *, row_number() over (order by change, id) as position from found) numbered
    )
    select string_agg(line, ${separator} order by position) filter (where position < $4) as lines,
           (count(line) filter (where position < $4))::int as members,
           max(id) filter (where ends_page) as id, max(change) filter (where ends_page) as change,
           (select until_change from range) as "untilChange", (select horizon from range) as horizon,
           (select (extract(epoch from began_at) * 1000000)::bigint from range) as "beganUs",
           -- Evaluated for each page instead of cached, because a restore changes it. The table has one row per restore (decision 59).
           exists (select from database_restore
                    where backup_at - interval '60 seconds' <= (select read_until from range)
                      and restored_at > (select read_until from range)) as "isLost"
      from ended`

export const listByChange: List = {
  page: feed('page', memberJson, erasedJson, `','`),
  ndjson: feed('ndjson', memberJson, erasedJson, `E'\\n'`),
  csv: feed('csv', memberCsv, erasedCsv, `E'\\r\\n'`),
  'line-ids': feed('line-ids', LINE_ID, 'null', `E'\\n'`),
}

// Checkpoints (rows of change_mark) store which changes had ended at which time, so that a delta feed can begin at a time.

/** A feed begins up to this much earlier than necessary. */
export const CHECKPOINT_INTERVAL_MS = 10_000

/** A checkpoint farther ahead is of a wrong clock: see insertCheckpoint. */
const AHEAD_MAX_MS = 3_600_000

/**
 * $1 int: minimum milliseconds between checkpoints, because every instance adds them. $2 int: AHEAD_MAX_MS.
 *
 * The horizon is that of the statement's snapshot, which is older than clock_timestamp(). So no change below it ended later.
 *
 * If the clock steps back, clients have times that it will show again. So none is added while a checkpoint is less than an hour
 * ahead, and feeds begin at the newest one before their time. If all checkpoints ahead are farther away, the clock had jumped ahead
 * and is right again, so they are added. A clock before all checkpoints is wrong, and adds none.
 */
const insertCheckpoint = statement('add-change-mark')`
    insert into change_mark (marked_at, change)
    select clock_timestamp(), change_horizon()
     where not exists (select from change_mark
                        where marked_at > clock_timestamp() - $1::int * interval '1 millisecond'
                          and marked_at <= clock_timestamp() + $2::int * interval '1 millisecond')
       and (exists (select from change_mark where marked_at <= clock_timestamp()) or not exists (select from change_mark))`

const prepareWrites = statement('prepare-writes')`${PREPARE_WRITES}`

export async function addCheckpoint(database: Queryable): Promise<void> {
  // Again for each checkpoint, because a dump may be restored while the connection is open.
  await database.query(prepareWrites)
  await database.query(insertCheckpoint, [CHECKPOINT_INTERVAL_MS / 2, AHEAD_MAX_MS])
}
