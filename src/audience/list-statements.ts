/**
 * The statements that list members, one per driving index, each as a page and as a stream. The delta feed is in
 * feed-statement.ts. They all take the same parameters:
 *
 *   $1 bigint  account          $5 text    userId
 *   $2 bigint  organization     $6 text    externalId
 *   $3 bigint  after this id    $7 text    relationship
 *   $4 int     limit;           $8 text[]  tags
 *              null: all        $9 text    part of the display name
 *
 * A filter that is null matches everything. `q` in any case; no character has a special meaning.
 */
import type { Statement } from '../postgres/statement.ts'
import { memberCsv, memberJson, withTrackedActivity } from './member.ts'

/** What a row becomes: one line of text, made by PostgreSQL. */
interface Lines {
  member: string
}

/** One list, in the three forms in which clients read it. */
export interface List {
  page: Statement
  ndjson: Statement
  csv: Statement
}

export const FILTERS = `($5::text is null or m.user_id = $5)
           and ($6::text is null or m.external_id = $6)
           and ($7::text is null or m.relationship = $7)
           and ($8::text[] is null or m.tags @> $8)
           and ($9::text is null or strpos(lower(m.display_name), lower($9)) > 0)`

/** All members, oldest first, with $1 to $4 alone: filters that are null would cost a page 5 %. Driven by the primary key. */
export const listAll = list(
  'all',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_member m ${withTrackedActivity}
         where m.channel_oa_id = $1 and m.organization_id = $2 and m.id > $3
         order by m.id limit $4`,
)

/** Members that match, oldest first. Driven by the primary key; for filters without an index. */
export const listById = list(
  'by-id',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_member m ${withTrackedActivity}
         where m.channel_oa_id = $1 and m.organization_id = $2 and m.id > $3
           and ${FILTERS}
         order by m.id limit $4`,
)

/** At most one member. Driven by audience_member_user. `+ 0` keeps out the primary key, which has the order of ids. */
export const listByUserId = list(
  'by-user-id',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_member m ${withTrackedActivity}
         where m.channel_oa_id = $1 and m.organization_id = $2 and m.user_id = $5 and m.id + 0 > $3
           and ${FILTERS}
         order by m.id + 0 limit $4`,
)

/** At most one member. Driven by audience_member_external_id. */
export const listByExternalId = list(
  'by-external-id',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_member m ${withTrackedActivity}
         where m.channel_oa_id = $1 and m.organization_id = $2 and m.external_id = $6 and m.id + 0 > $3
           and ${FILTERS}
         order by m.id + 0 limit $4`,
)

/** Driven by audience_member_relationship. */
export const listByRelationship = list(
  'by-relationship',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_member m ${withTrackedActivity}
         where m.channel_oa_id = $1 and m.organization_id = $2 and m.relationship = $7 and m.id > $3
           and ${FILTERS}
         order by m.id limit $4`,
)

/** Driven by audience_tag, by the first of the tags. `offset 0` keeps each member one look-up. */
export const listByTag = list(
  'by-tag',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_tag g
          join lateral (select * from audience_member
                         where channel_oa_id = $1 and id = g.member_id offset 0) m on true ${withTrackedActivity}
         where g.channel_oa_id = $1 and g.tag = ($8::text[])[1] and g.member_id > $3
           and m.organization_id = $2
           and ${FILTERS}
         order by g.member_id limit $4`,
)

/** The n-grams contain the account. `+ 0` keeps out other indexes, which would return all of its members. */
const HAS_NAME = `m.display_name is not null
           and name_ngrams(m.channel_oa_id, m.display_name) @> part_ngrams($1, $9)
           and m.channel_oa_id + 0 = $1 and m.organization_id = $2`

/** Every member with a name. Driven by audience_member_name; for streams. */
const listByName = list(
  'by-name',
  ({ member }) => `
        select m.id, ${member} as line
          from audience_member m ${withTrackedActivity}
         where ${HAS_NAME} and m.id + 0 > $3
           and ${FILTERS}
         order by m.id limit $4`,
)

/**
 * The next members with a name; for pages. Common names are found sooner in the order of ids, so 4,000 members are searched
 * before audience_member_name is. `far` does not run if `near` fills the page.
 */
const listNearName = list(
  'near-name',
  ({ member }) => `
        with near as materialized (
          select m.id
            from (select * from audience_member m
                   where m.channel_oa_id = $1 and m.organization_id = $2 and m.id > $3
                   order by m.id limit 4000) m
           where ${FILTERS}
           order by m.id limit $4
        ), far as materialized (
          select m.id from audience_member m
           where (select count(*) from near) < $4 and ${HAS_NAME}
             and m.id + 0 > coalesce((select max(id) from near), $3)
             and ${FILTERS}
           order by m.id limit $4
        )
        select m.id, ${member} as line
          from (select id from near union all select id from far order by id limit $4) page
          join lateral (select * from audience_member
                         where channel_oa_id = $1 and id = page.id offset 0) m on true ${withTrackedActivity}
         order by page.id`,
)

export const listByDisplayName: List = { ...listByName, page: listNearName.page }

function list(name: string, rows: (lines: Lines) => string): List {
  const json = rows({ member: memberJson })
  const csv = rows({ member: memberCsv })
  return {
    page: { name: `audience-${name}-page`, text: pageById(json) },
    ndjson: { name: `audience-${name}-ndjson`, text: json },
    csv: { name: `audience-${name}-csv`, text: csv },
  }
}

/**
 * A page as one row, because fifty small rows cost this process more than the database. The limit is one row more than the
 * page: if that row exists, another page follows, and `id` is the last member of this one.
 */
function pageById(rows: string): string {
  return `
    select string_agg(line, ',' order by id) filter (where position < $4) as lines,
           max(id) filter (where position = $4 - 1 and has_more) as id
      from (select *, row_number() over (order by id) as position, count(*) over () = $4 as has_more
              from (${rows}) found) numbered`
}
