/** The exact number of members that match filters, counted in statements that read as many as a page of a list. See docs/planner.md. */
import type { Scope } from '../accounts/scope.ts'
import { AppError } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { type Queryable, type Statement, statement } from '../postgres/statement.ts'
import { type Filters, withRequired } from './filters.ts'
import { ACCOUNT_IN_SCOPE, FILTERS, IN_SCOPE, SCAN_MAX } from './list-statements.ts'
import { conditionsOf, readIds } from './select-list.ts'

/** A million members are 500 statements of some milliseconds. A proxy in front of the console waits at least 30 s. */
const COUNT_MAX_MS = 20_000

// Parameters as in list-statements.ts.

const countById = statement('count-matching-members')`
    select count(*) filter (where is_match)::int as count, max(id) as "lastId", count(*)::int as candidates
      from (select m.id, ${FILTERS} as is_match from audience_member m
             where ${IN_SCOPE} and m.id > $3 order by m.id limit $4) m`

/** The members of the first tag. */
const countByTag = statement('count-matching-members-by-tag')`
    select count(*) filter (where m.is_match)::int as count, max(g.member_id) as "lastId", count(*)::int as candidates
      from (select g.member_id from audience_tag g
             where g.channel_oa_id = $1 and g.tag = ($8::text[])[1] and g.member_id > $3 and ${ACCOUNT_IN_SCOPE}
             order by g.member_id limit $4) g
      left join lateral (
        select ${FILTERS} as is_match from audience_member m
         where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = g.member_id offset 0) m on true`

type Count = { count: number; lastId: bigint | null; candidates: number }

/** Throws `unavailable` if it takes longer than COUNT_MAX_MS. */
export async function countMatching(database: Queryable, scope: Scope, filters: Filters): Promise<number> {
  if (filters.userId !== undefined || filters.externalId !== undefined) {
    const { ids } = await readIds(
      database,
      scope,
      filters,
      { kind: 'id', id: INT64_MIN, isCommonName: false },
      2,
    )
    return ids.length
  }
  const list: Statement = withRequired(filters).tag === undefined ? countById : countByTag
  const deadline = performance.now() + COUNT_MAX_MS
  let total = 0
  for (let after: bigint | null = INT64_MIN; after !== null; ) {
    const of = [scope.accountId, scope.organizationId, after, SCAN_MAX]
    const values = [...of, ...conditionsOf(filters)]
    const [{ count, lastId, candidates }] = (await database.query<Count>(list, values)) as [Count]
    total += count
    after = candidates < SCAN_MAX ? null : lastId
    if (performance.now() > deadline)
      throw new AppError('unavailable', { message: 'Counting takes too long. Narrow the filter.' })
  }
  return total
}
