/**
 * The statement of the delta feed: members and tombstones in the order of their change numbers (migrations/0002-audience.sql). It takes the
 * parameters of the other lists (list-statements.ts), and
 *
 *   $10 bigint  after this change number; null: on the first page
 *   $11 bigint  before this change number: the changes after it began after the walk
 *   $12 bigint  the horizon at the first page: changes before this number had ended
 *   $13 bigint  the time of the first page by the primary's clock, microseconds since 1970
 *   $14 bigint  on the first page, updatedSince, milliseconds since 1970
 *
 * Changes between horizon and end may be committed during the walk, behind its position. The next walk returns them, because it
 * begins at a mark, and a mark is never after the horizon of an earlier time. This needs a next walk that begins at a time of
 * this one at the latest. So a change above the horizon is left to the next walk if it was made after the first page.
 *
 * A page is one row: its lines, their number, and the position of the last candidate that was examined (null: the walk is over).
 */
import { statement } from '../postgres/statement.ts'
import { FILTERS, type List, SCAN_MAX } from './list-statements.ts'
import { erasedCsv, erasedJson, memberCsv, memberJson, withTrackedActivity } from './member.ts'

/**
 * A mark may be 10 s older than the next one, and a late one 20 s more. Within such a gap the database's clock may step back
 * without a trace in the marks, so a feed begins at a mark that is older than the requested time by a whole gap of 30 s. A page
 * of the previous walk may have lacked the changes of 30 s, the maximum of READ_MAX_LAG_MS. 30 + 30 = 60 s.
 */
const SINCE = `timestamptz 'epoch' + $14::bigint * interval '1 millisecond' - interval '60 seconds'`

/**
 * A clock that had jumped ahead, and was set right, shows the same times again later, with higher numbers. Of the marks from then,
 * the first one may be up to 30 s after the time. If the clock never jumped, the marks after SINCE have higher numbers.
 */
const FIRST_CHANGE_AROUND = `(select min(near.change) from change_mark near
                                         where near.marked_at > ${SINCE}
                                           and near.marked_at <= ${SINCE} + interval '90 seconds')`

/**
 * A time in the future has a mark near it only if the clock stepped back. Otherwise a client or another program invented it,
 * and nothing says what the client has read: the feed begins at the beginning.
 */
const FEED_START = `coalesce($10::bigint,
                (select case when ${SINCE} < greatest(clock_timestamp(), marked_at + interval '1 minute')
                        then least(change, ${FIRST_CHANGE_AROUND}) - 1 end
                   from change_mark
                  where marked_at <= ${SINCE}
                  order by marked_at desc limit 1),
                -1)`

/** The clock of a replica may be ahead of the primary's, but the last commit that the replica has replayed carries the primary's time. */
const PRIMARY_CLOCK = `least(clock_timestamp(), case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end)`

const isOfWalk = (change: string, at: string) => `(${change} < (select horizon from range)
                                or ${at} <= timestamptz 'epoch' + (select began_us from range) * interval '1 microsecond')`

/**
 * Driven by audience_member_change and erased_member_change. The candidate that ends the scan is returned, whether it matches
 * or not: the next page begins behind it. A tombstone matches only while no member has its id: another program may have
 * loaded the member again. Members are found by ctid and by the order of ids, because without statistics the planner would look
 * an id up in an index that leads through the whole account.
 */
const rowsOf = (member: string, erased: string) => `
        with range as materialized (
          select ${FEED_START} as after_change, coalesce($11::bigint, change_limit()) as until_change,
                 coalesce($12::bigint, change_horizon()) as horizon,
                 coalesce($13::bigint, (extract(epoch from ${PRIMARY_CLOCK}) * 1000000)::bigint) as began_us
        )
        select c.change, c.id, c.is_last, (select until_change from range) as until_change,
               (select horizon from range) as horizon, (select began_us from range) as began_us,
               case when not c.is_match then null when c.is_erased then ${erased} else ${member} end as line
          from (select *, row_number() over (order by change, id) = ${SCAN_MAX} as is_last
                  from (
                    (select m.change, m.id, m.ctid as place, null::timestamptz as at, false as is_erased,
                            m.organization_id = $2 and ${FILTERS}
                              and ${isOfWalk('m.change', 'm.updated_at')} as is_match
                       from audience_member m
                      where m.channel_oa_id = $1
                        and (m.change, m.id) > ((select after_change from range), $3)
                        and m.change < (select until_change from range)
                      order by m.change, m.id limit ${SCAN_MAX})
                     union all
                    (select e.change, e.id, null, e.deleted_at, true,
                            e.organization_id = $2
                              and e.id is distinct from (select id from audience_member
                                                          where channel_oa_id = $1 and id >= e.id order by id limit 1)
                              and ${isOfWalk('e.change', 'e.deleted_at')}
                       from erased_member e
                      where e.channel_oa_id = $1
                        and (e.change, e.id) > ((select after_change from range), $3)
                        and e.change < (select until_change from range)
                      order by e.change, e.id limit ${SCAN_MAX})
                     order by change, id limit ${SCAN_MAX}
                  ) candidate
               ) c
          left join lateral (select * from audience_member where ctid = c.place and c.is_match offset 0) m on true
          ${withTrackedActivity}
         where c.is_match or c.is_last
         order by c.change, c.id limit $4`

/**
 * $4 is one more than the page. If that many rows are found, the next page begins after the last member of this one. Otherwise
 * it begins after the candidate that ended the scan, if one did.
 */
const pageOf = (rows: string, separator: string) => `
    select string_agg(line, ${separator} order by position) filter (where position < $4) as lines,
           (count(line) filter (where position < $4))::int as members,
           max(id) filter (where ends_page) as id, max(change) filter (where ends_page) as change,
           max(until_change) as until_change, max(horizon) as horizon, max(began_us) as began_us
      from (select *, case when has_more then position = $4 - 1 else is_last end as ends_page
              from (select *, row_number() over (order by change, id) as position, count(*) over () = $4 as has_more
                      from (${rows}) found) numbered) ended`

export const listByChange: List = {
  page: statement('audience-by-change-page')`${pageOf(rowsOf(memberJson, erasedJson), `','`)}`,
  ndjson: statement('audience-by-change-ndjson')`${pageOf(rowsOf(memberJson, erasedJson), `E'\\n'`)}`,
  csv: statement('audience-by-change-csv')`${pageOf(rowsOf(memberCsv, erasedCsv), `E'\\r\\n'`)}`,
}
