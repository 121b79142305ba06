/** Chooses the statement that lists what a client asks for, and binds its parameters. */
import type { Scope } from '../access/scope.ts'
import type { BoundStatement, Row } from '../postgres/statement.ts'
import type { Filters } from './filters.ts'
import {
  type List,
  listAll,
  listByChange,
  listByDisplayName,
  listByExternalId,
  listById,
  listByRelationship,
  listByTag,
  listByUserId,
} from './list-statements.ts'

/** Where a page begins: after this one. */
export type Position =
  /** In a walk over all members, by id. */
  | { kind: 'id'; id: bigint }
  /** In a delta feed, by time of change and id, up to where the feed stood when the walk began (null: now). */
  | { kind: 'change'; atUs: bigint; id: bigint; untilUs: bigint | null }

/** A page as one row. */
export interface PageRow extends Row {
  /** JSON of the members, separated by commas. Null: there are none. */
  lines: string | null
  /** Position of the last member. Null: no other page follows. */
  id: bigint | null
  /** Microseconds since 1970, in a delta feed only. */
  at_us?: bigint | null
  until_us?: bigint | null
}

/** Characters. A shorter part is in most names and in no index. */
const INDEXED_PART_MIN_LENGTH = 2

/**
 * Transactions that write members last no longer: their statements are limited to 5 s and few. A feed begins that much
 * earlier than its client asks, so that a change that was committed late is not missed.
 */
export const LATE_COMMIT_SECONDS = 60

/** Up to `limit` members as one PageRow. */
export function selectPage(
  scope: Scope,
  filters: Filters,
  position: Position,
  limit: number,
): BoundStatement {
  const list = listFor(filters, position)
  return { statement: list.page, values: valuesOf(list, scope, filters, position, limit + 1) }
}

/** Every match, a row with its `line` each. */
export function selectStream(
  scope: Scope,
  filters: Filters,
  position: Position,
  format: 'ndjson' | 'csv',
): BoundStatement {
  const list = listFor(filters, position)
  return { statement: list[format], values: valuesOf(list, scope, filters, position, null) }
}

/** The list whose index leaves the fewest members to look at. */
function listFor({ userId, externalId, relationship, tag, q }: Filters, position: Position): List {
  if (position.kind === 'change') return listByChange
  if (userId !== undefined) return listByUserId
  if (externalId !== undefined) return listByExternalId
  if (q !== undefined && [...q].length >= INDEXED_PART_MIN_LENGTH) return listByDisplayName
  if (tag !== undefined) return listByTag
  if (relationship !== undefined) return listByRelationship
  return q === undefined ? listAll : listById
}

function valuesOf(
  list: List,
  scope: Scope,
  filters: Filters,
  position: Position,
  limit: number | null,
): unknown[] {
  const walk = [scope.accountId, scope.organizationId, position.id, limit]
  if (list === listAll) return walk
  const { userId = null, externalId = null, relationship = null, tag = null, q = null } = filters
  const change = position.kind === 'change' ? [position.atUs, position.untilUs] : []
  return [...walk, userId, externalId, relationship, tag, q, ...change]
}
