/** Chooses the statement that lists what a client asks for, and binds its parameters. */
import type { Scope } from '../access/scope.ts'
import { INT64_MAX } from '../http/path-id.ts'
import type { BoundStatement, Row } from '../postgres/statement.ts'
import { listByChange } from './feed-statement.ts'
import type { Filters } from './filters.ts'
import {
  type List,
  listAll,
  listByDisplayName,
  listByExternalId,
  listById,
  listByRelationship,
  listByTag,
  listByUserId,
} from './list-statements.ts'

/** Where a page of a walk begins: after this one. */
export type Position =
  /** In a walk over all members, by id. */
  | { kind: 'id'; id: bigint }
  /** In a delta feed, by change number and id, with what the first page found out: see feed-statement.ts. */
  | { kind: 'change'; change: bigint; id: bigint; walk: FeedWalk }

export interface FeedWalk {
  untilChange: bigint
  horizon: bigint
  beganUs: bigint
}

/** Where the first page begins. In a delta feed, it finds the change number of a time. */
export type Beginning = Position | { kind: 'time'; ms: number }

/** A page as one row. */
export interface PageRow extends Row {
  /** JSON of the members, separated by commas. Null: there are none. */
  lines: string | null
  /** In a delta feed only. */
  members?: number
  /** Position after which the next page begins. Null: the walk is over. */
  id: bigint | null
  /** In a delta feed only. */
  change?: bigint | null
  until_change?: bigint | null
  horizon?: bigint | null
  began_us?: bigint | null
}

/** Characters. A shorter part is in most names and in no index. */
const INDEXED_PART_MIN_LENGTH = 2

/** Up to `limit` members as one PageRow. */
export function selectPage(
  scope: Scope,
  filters: Filters,
  position: Beginning,
  limit: number,
  form: keyof List = 'page',
): BoundStatement {
  const list = listFor(filters, position)
  return { statement: list[form], values: valuesOf(list, scope, filters, position, limit + 1) }
}

/** Where the next page begins. Null: the walk is over. */
export function nextOf({ id, change, until_change, horizon, began_us }: PageRow): Position | null {
  if (id === null) return null
  if (change == null || until_change == null || horizon == null || began_us == null) return { kind: 'id', id }
  return { kind: 'change', id, change, walk: { untilChange: until_change, horizon, beganUs: began_us } }
}

/** Every match, a row with its `line` each. Not for a delta feed, which is read page by page. */
export function selectStream(
  scope: Scope,
  filters: Filters,
  position: Beginning,
  format: 'ndjson' | 'csv',
): BoundStatement {
  const list = listFor(filters, position)
  return { statement: list[format], values: valuesOf(list, scope, filters, position, null) }
}

/** The list whose index leaves the fewest members to look at. */
function listFor({ userId, externalId, relationship, tag, q }: Filters, position: Beginning): List {
  if (position.kind !== 'id') return listByChange
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
  position: Beginning,
  limit: number | null,
): unknown[] {
  const { userId = null, externalId = null, relationship = null, tag = null, q = null } = filters
  const conditions = [userId, externalId, relationship, tag, q]
  const of = [scope.accountId, scope.organizationId]
  switch (position.kind) {
    case 'id':
      return list === listAll ? [...of, position.id, limit] : [...of, position.id, limit, ...conditions]
    case 'change': {
      const { untilChange, horizon, beganUs } = position.walk
      const walk = [position.change, untilChange, horizon, beganUs, null]
      return [...of, position.id, limit, ...conditions, ...walk]
    }
    case 'time':
      // The greatest id: the feed begins behind the number before the first one.
      return [...of, INT64_MAX, limit, ...conditions, null, null, null, null, position.ms]
  }
}
