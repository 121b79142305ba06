/**
 * The statements that list members, one per driving index and format. The delta feed is in feed-statement.ts. All take the same
 * parameters:
 *
 *   $1 bigint  account          $5 text    userId
 *   $2 bigint  organization     $6 text    externalId
 *   $3 bigint  after this id    $7 text    relationship
 *   $4 int     limit            $8 text[]  tags
 *                               $9 text    part of the display name
 *                               $10 jsonb  condition of a segment
 *                               $11 text   source
 *
 * A filter that is null matches everything. The part of the display name ignores case and has no wildcards. See docs/planner.md.
 */
import { type Statement, statement } from '../postgres/statement.ts'
import { holdsFor } from './condition.ts'
import { LINE_ID, memberCsv, memberJson, withTrackedActivity } from './member.ts'

/** line-ids: user ids of LINE's form, one per line */
export type List = Record<'page' | 'ndjson' | 'csv' | 'line-ids', Statement>

export type ListById = List & { ids: Statement }

/**
 * Candidates that one statement reads from its driving index. If their matches do not fill the page, the page ends with the last
 * candidate, and the next page begins there. On a cold disk a candidate takes two random reads of 0.5 ms, in the index and in the
 * table: 2,000 × 2 × 0.5 ms = 2 s of the 5 s that a statement may take.
 */
export const SCAN_MAX = 2_000

/** The last candidate is returned even if it does not match. */
const IS_LAST = `= ${SCAN_MAX} as is_last`

/** Without this condition, a key of the wrong organization scans every member of the account and returns none. */
const ACCOUNT_IN_SCOPE = `(select organization_id from official_account where id = $1) = $2`
const IN_SCOPE = `m.channel_oa_id = $1 and m.organization_id = $2 and ${ACCOUNT_IN_SCOPE}`

export const FILTERS = `($5::text is null or m.user_id = $5)
           and ($6::text is null or m.external_id = $6)
           and ($7::text is null or m.relationship = $7)
           and ($8::text[] is null or m.tags @> $8)
           and ($9::text is null or strpos(lower(m.display_name), lower($9)) > 0)
           and ($11::text is null or m.source = $11)
           and ${holdsFor('$10::jsonb')}`

/** All members, oldest first, driven by the primary key. Takes only $1 to $4, because null filters would cost a page 5 %. */
export const listAll = list(
  'all',
  (member) => `
        select m.id, false as is_last, ${member} as line
          from audience_member m ${withTrackedActivity}
         where ${IN_SCOPE} and m.id > $3
         order by m.id limit $4`,
)

/** Serves filters without an index. Driven by the primary key. */
export const listById = listScanned('by-id', 'm.id > $3')

/** Driven by audience_member_relationship. */
export const listByRelationship = listScanned('by-relationship', 'm.relationship = $7 and m.id > $3')

/** Driven by audience_member_source. */
export const listBySource = listScanned('by-source', 'm.source = $11 and m.id > $3')

/** Driven by audience_member_user. */
export const listByUserId = listFound('by-user-id', 'm.user_id = $5')

/** Driven by audience_member_external_id. */
export const listByExternalId = listFound('by-external-id', 'm.external_id = $6')

function listScanned(name: string, condition: string): ListById {
  return list(
    name,
    (member) => `
        select m.id, m.is_last, case when m.is_match then ${member} end as line
          from (select *, row_number() over (order by m.id) ${IS_LAST}, ${FILTERS} as is_match
                  from audience_member m
                 where ${IN_SCOPE} and ${condition}
                 order by m.id limit ${SCAN_MAX}) m ${withTrackedActivity}
         where m.is_match or m.is_last
         order by m.id limit $4`,
  )
}

/** `+ 0` prevents the use of the primary key for the order. */
function listFound(name: string, condition: string): ListById {
  return list(
    name,
    (member) => `
        select m.id, false as is_last, ${member} as line
          from audience_member m ${withTrackedActivity}
         where ${IN_SCOPE} and ${condition} and m.id + 0 > $3
           and ${FILTERS}
         order by m.id + 0 limit $4`,
  )
}

/** Driven by audience_tag for the first tag. `offset 0` makes it one lookup per member. */
export const listByTag = list(
  'by-tag',
  (member) => `
        select g.member_id as id, g.is_last, case when m.is_match then ${member} end as line
          from (select g.member_id, row_number() over (order by g.member_id) ${IS_LAST}
                  from audience_tag g
                 where g.channel_oa_id = $1 and g.tag = ($8::text[])[1] and g.member_id > $3 and ${ACCOUNT_IN_SCOPE}
                 order by g.member_id limit ${SCAN_MAX}) g
          left join lateral (
            select *, ${FILTERS} as is_match from audience_member m
             where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = g.member_id offset 0) m on true
          ${withTrackedActivity}
         where m.is_match or g.is_last
         order by g.member_id limit $4`,
)

/**
 * Members whose name contains a text. `near` scans candidates in the order of ids, which is fast for common texts. If that does not fill
 * the page, `named` searches audience_member_name, which has no order. Up to SCAN_MAX results are complete. With more, the page ends with
 * the last candidate of `near`. `+ 0` prevents the use of other indexes, which would return all members of the account.
 */
export const listByDisplayName = list(
  'by-name',
  (member) => `
        with near as materialized (
          select m.id, m.is_last, m.is_match
            from (select m.id, row_number() over (order by m.id) ${IS_LAST}, ${FILTERS} as is_match
                    from audience_member m
                   where ${IN_SCOPE} and m.id > $3
                   order by m.id limit ${SCAN_MAX}) m
           where m.is_match or m.is_last
           order by m.id limit $4
        ), named as materialized (
          select m.id, ${FILTERS} as is_match
            from audience_member m
           where (select count(*) filter (where is_match) < $4 and bool_or(is_last) from near)
             and m.display_name is not null
             and name_ngrams(m.channel_oa_id, m.display_name) @> part_ngrams($1, $9)
             and m.channel_oa_id + 0 = $1 and m.organization_id = $2
           limit ${SCAN_MAX} + 1
        ), page as (
          select id, is_match, is_last and is_common as is_last
            from near, (select count(*) > ${SCAN_MAX} as is_common from named) named
           where is_match or is_last and is_common
           union all
          select id, true, false from named
           where is_match and id > (select max(id) from near) and (select count(*) <= ${SCAN_MAX} from named)
           order by id limit $4
        )
        select page.id, page.is_last, case when page.is_match then ${member} end as line
          from page
          join lateral (select * from audience_member
                         where channel_oa_id = $1 and id = page.id offset 0) m on true ${withTrackedActivity}
         order by page.id`,
)

function list(name: string, rows: (member: string) => string): ListById {
  const json = rows(memberJson)
  const csv = rows(memberCsv)
  return {
    page: statement(`audience-${name}-page`)`${pageById(json, `','`)}`,
    ndjson: statement(`audience-${name}-ndjson`)`${streamById(json, `E'\\n'`)}`,
    csv: statement(`audience-${name}-csv`)`${streamById(csv, `E'\\r\\n'`)}`,
    'line-ids': statement(`audience-${name}-line-ids`)`${streamById(rows(LINE_ID), `E'\\n'`)}`,
    ids: statement(`audience-${name}-ids`)`${streamById(rows('m.id::text'), `','`)}`,
  }
}

/**
 * A page as one row, because many small rows cost processor time. $4 is the page size plus one. If that many rows are found, the next
 * page begins after the last member of this one. Otherwise it begins after the last candidate, if the scan reached its limit.
 */
function pageById(rows: string, separator: string): string {
  return `
    select string_agg(line, ${separator} order by id) filter (where position < $4) as lines,
           (count(line) filter (where position < $4))::int as members,
           max(id) filter (where case when has_more then position = $4 - 1 else is_last end) as id
      from (select *, row_number() over (order by id) as position, count(*) over () = $4 as has_more
              from (${rows}) found) numbered`
}

/** A page of a stream, which need not detect the last page in advance. Numbering its rows would cost 8 %. */
function streamById(rows: string, separator: string): string {
  return `
    select string_agg(line, ${separator} order by id) as lines, count(line)::int as members,
           case when count(*) = $4 or bool_or(is_last) then max(id) end as id
      from (${rows}) found`
}
