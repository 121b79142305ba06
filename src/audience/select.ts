/** The statements that read members: one for each combination of filters, each driven by one index. */
import type { Scope } from '../access/scope.ts'
import { type BoundStatement, type Row, variant } from '../postgres/statement.ts'
import type { Filters } from './filters.ts'
import { erasedCsv, erasedJson, memberCsv, memberJson, withTrackedActivity } from './member.ts'

/** What a row becomes: one line of text, made by PostgreSQL. */
export type Shape = 'json' | 'csv'

/** Where a page begins: after this one. */
export type Position =
  /** in a walk over all, by id */
  | { kind: 'id'; id: bigint }
  /** in a delta feed, by time of change and id, up to where the feed stood when the walk began (null: now) */
  | { kind: 'change'; atUs: bigint; id: bigint; untilUs: bigint | null }

/** A page as one row: fifty small ones cost this process more than the database. */
export interface PageRow extends Row {
  /** JSON of the members, with commas between; null: none */
  lines: string | null
  /** the last member's place, if another page follows */
  id: bigint | null
  /** microseconds since 1970; of a delta feed alone */
  at_us?: bigint | null
  until_us?: bigint | null
}

/** Members through which a name is sought in their order before the index of names is asked: common names are found sooner so. */
const NEAR_MEMBERS = 4_000

/** A part of a name shorter than this is in most names, or in no index. */
const NAME_PART_MIN_LENGTH = 2

/**
 * Transactions that write members last no longer (statements 5 s, few in each). A feed begins so much earlier than its client
 * asks, for what was committed late.
 */
export const LATE_COMMIT_SECONDS = 60

/** Up to `limit` members as one PageRow. */
export function selectPage(
  scope: Scope,
  filters: Filters,
  position: Position,
  limit: number,
): BoundStatement {
  // One more than asked for tells whether another page follows.
  const { statement, values } = selectMembers(scope, filters, position, limit + 1, 'json')
  return { statement: variant(`${statement.name}-page`, () => pageOf(statement.text, position.kind)), values }
}

function pageOf(text: string, kind: Position['kind']): string {
  const last = (column: string) => `max(${column}) filter (where no = $4 - 1 and has_more) as ${column}`
  const columns = kind === 'id' ? ['id'] : ['id', 'at_us', 'until_us']
  return `
    select string_agg(line, ',') filter (where no < $4) as lines, ${columns.map(last).join(', ')}
      from (select *, row_number() over () as no, count(*) over () = $4 as has_more from (${text}) found) numbered`
}

/** A row each, with its `line`. @param limit null: all of them, for a stream */
export function selectMembers(
  scope: Scope,
  filters: Filters,
  position: Position,
  limit: number | null,
  shape: Shape,
): BoundStatement {
  const { userId, externalId, relationship, tag, q } = filters
  const given = { userId, externalId, relationship, tag, q }
  const names = (Object.keys(given) as Array<keyof typeof given>).filter((name) => given[name] !== undefined)
  const driver = driverOf(filters, position, limit)
  const name = ['audience', shape, driver, ...names].join('-')
  const values = [
    ...[scope.accountId, scope.organizationId, position.id, limit],
    ...names.map((each) => given[each]),
    ...(position.kind === 'change' ? [position.atUs, position.untilUs] : []),
  ]
  return { statement: variant(name, () => textOf(shape, driver, names)), values }
}

/** Looks a member up for each row so far. Offset keeps it that: the planner might walk through all members beside them. */
function memberOf(id: string, condition = 'true', join: 'join' | 'left join' = 'join'): string {
  return `${join} lateral (
    select * from audience_member m where m.channel_oa_id = $1 and m.id = ${id} and ${condition} offset 0) m on true`
}

type Driver = 'change' | 'near-name' | 'name' | 'tag' | 'id'

function driverOf({ userId, externalId, tag, q }: Filters, position: Position, limit: number | null): Driver {
  if (position.kind === 'change') return 'change'
  if (userId !== undefined || externalId !== undefined) return 'id'
  if (q !== undefined && [...q].length >= NAME_PART_MIN_LENGTH) return limit === null ? 'name' : 'near-name'
  return tag === undefined ? 'id' : 'tag'
}

/** Parameters: $1 account, $2 organization, $3 id, $4 limit, then the filters, then those of a delta feed. */
function textOf(shape: Shape, driver: Driver, names: string[]): string {
  const parameter = (name: string) => `$${5 + names.indexOf(name)}`
  const line = shape === 'json' ? memberJson : memberCsv
  const inScope = 'm.channel_oa_id = $1 and m.organization_id = $2'
  const conditions: Record<string, string> = {
    userId: `m.user_id = ${parameter('userId')}`,
    externalId: `m.external_id = ${parameter('externalId')}`,
    relationship: `m.relationship = ${parameter('relationship')}`,
    tag: `m.tags @> ${parameter('tag')}::text[]`,
    q: `strpos(lower(m.display_name), lower(${parameter('q')})) > 0`,
  }
  const matches = ['true', ...names.map((name) => conditions[name])].join(' and ')
  // The pieces hold the account: other indexes, which would name all of its members, are kept out by + 0.
  const hasPieces = `m.display_name is not null
                     and name_pieces(m.channel_oa_id, m.display_name) @> part_pieces($1, ${parameter('q')})
                     and m.channel_oa_id + 0 = $1 and m.organization_id = $2`
  switch (driver) {
    case 'id':
      return `
        select m.id, ${line} as line from audience_member m ${withTrackedActivity}
         where ${inScope} and m.id > $3 and ${matches}
         order by m.id limit $4`
    case 'tag':
      return `
        select m.id, ${line} as line
          from audience_tag g ${memberOf('g.member_id', `m.organization_id = $2 and ${matches}`)} ${withTrackedActivity}
         where g.channel_oa_id = $1 and g.tag = (${parameter('tag')}::text[])[1] and g.member_id > $3
         order by g.member_id limit $4`
    case 'name':
      return `
        select m.id, ${line} as line from audience_member m ${withTrackedActivity}
         where ${hasPieces} and m.id + 0 > $3 and ${matches}
         order by m.id limit $4`
    case 'near-name':
      // The second part is not run at all where the first one fills the page.
      return `
        with near as materialized (
          select m.id
            from (select * from audience_member m where ${inScope} and m.id > $3 order by m.id limit ${NEAR_MEMBERS}) m
           where ${matches} order by m.id limit $4
        ), far as materialized (
          select m.id from audience_member m
           where (select count(*) from near) < $4 and ${hasPieces}
             and m.id + 0 > coalesce((select max(id) from near), $3) and ${matches}
           order by m.id limit $4
        )
        select m.id, ${line} as line
          from (select id from near union all select id from far order by id limit $4) page
               ${memberOf('page.id')} ${withTrackedActivity}
         order by page.id`
    case 'change': {
      const at = `timestamptz 'epoch' + $${5 + names.length}::bigint * interval '1 microsecond'`
      const until = `coalesce(timestamptz 'epoch' + $${6 + names.length}::bigint * interval '1 microsecond', statement_timestamp())`
      const microseconds = (time: string) => `(extract(epoch from ${time}) * 1000000)::bigint`
      return `
        select c.id, ${microseconds('c.at')} as at_us, ${microseconds(until)} as until_us,
               case when c.is_erased then ${shape === 'json' ? erasedJson : erasedCsv} else ${line} end as line
          from (
            (select m.updated_at as at, m.id, false as is_erased from audience_member m
              where ${inScope} and (m.updated_at, m.id) > (${at}, $3) and m.updated_at <= ${until} and ${matches}
              order by m.updated_at, m.id limit $4)
             union all
            (select e.deleted_at, e.id, true from erased_member e
              where e.channel_oa_id = $1 and e.organization_id = $2
                and (e.deleted_at, e.id) > (${at}, $3) and e.deleted_at <= ${until}
              order by e.deleted_at, e.id limit $4)
             order by at, id limit $4
          ) c
          ${memberOf('c.id', 'not c.is_erased', 'left join')} ${withTrackedActivity}
         order by c.at, c.id`
    }
  }
}
