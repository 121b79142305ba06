/** Chooses the statement that lists the requested members, binds its parameters, and reads a page with it. */
import type { Scope } from '../access/scope.ts'
import type { Queryable, Row } from '../postgres/statement.ts'
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
  /** In a walk over all members, by id. `isCommonName`: too many names contain `q`, so their index does not help. */
  | { kind: 'id'; id: bigint; isCommonName: boolean }
  /** In a delta feed, by time of change and id, up to where the feed stood when the walk began (null: now). */
  | { kind: 'change'; atUs: bigint; id: bigint; untilUs: bigint | null }

/** A page as one row. */
interface PageRow extends Row {
  /** The members as text, with the separator of the form. Null: there are none. */
  lines: string | null
  members: number
  /** Position after which the next page begins. Null: the walk is over. */
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

/** Members as text. A page may be empty although another one follows. */
export interface Page {
  lines: string
  members: number
  /** Where the next page begins. Null: the walk is over. */
  next: Position | null
}

/** Reads up to `limit` members after a position, in one of the forms of a list. */
export async function readPage(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  position: Position,
  limit: number,
  form: keyof List,
): Promise<Page> {
  const list = listFor(filters, position)
  const [row] = await database.query<PageRow>(list[form], valuesOf(list, scope, filters, position, limit + 1))
  return {
    lines: row?.lines ?? '',
    members: row?.members ?? 0,
    next: row ? nextOf(list, position, limit, row) : null,
  }
}

function nextOf(list: List, before: Position, limit: number, row: PageRow): Position | null {
  const { id, members, at_us: atUs, until_us: untilUs } = row
  if (id === null) return null
  if (typeof atUs === 'bigint' && typeof untilUs === 'bigint') return { kind: 'change', id, atUs, untilUs }
  // The list by name ends early only if its index finds too many.
  const isFoundCommon = list === listByDisplayName && members < limit
  return { kind: 'id', id, isCommonName: isFoundCommon || (before.kind === 'id' && before.isCommonName) }
}

/** The list whose index leaves the fewest members to look at. */
function listFor({ userId, externalId, relationship, tag, q }: Filters, position: Position): List {
  if (position.kind === 'change') return listByChange
  if (userId !== undefined) return listByUserId
  if (externalId !== undefined) return listByExternalId
  const isPartIndexed = q !== undefined && [...q].length >= INDEXED_PART_MIN_LENGTH
  if (isPartIndexed && !position.isCommonName) return listByDisplayName
  if (tag !== undefined) return listByTag
  if (relationship !== undefined) return listByRelationship
  return q === undefined ? listAll : listById
}

function valuesOf(list: List, scope: Scope, filters: Filters, position: Position, limit: number): unknown[] {
  const walk = [scope.accountId, scope.organizationId, position.id, limit]
  if (list === listAll) return walk
  const { userId = null, externalId = null, relationship = null, tag = null, q = null } = filters
  const change = position.kind === 'change' ? [position.atUs, position.untilUs] : []
  return [...walk, userId, externalId, relationship, tag, q, ...change]
}
