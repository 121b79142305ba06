/** Chooses the statement for a list of members and reads a page with it. */
import { createHash } from 'node:crypto'
import type { Scope } from '../accounts/scope.ts'
import { AppError } from '../errors.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { refuseInput } from '../http/validate.ts'
import type { Queryable, Row } from '../postgres/statement.ts'
import { listByChange } from './feed-statement.ts'
import { type Filters, withRequired } from './filters.ts'
import {
  type List,
  type ListById,
  listAll,
  listByDisplayName,
  listByExternalId,
  listByRelationship,
  listBySource,
  listByTag,
  listByUserId,
  listById as listWithoutIndex,
  SCAN_MAX,
} from './list-statements.ts'

type Position = IdPosition | FeedPosition

/** `isCommonName`: too many names contain `q`, so the index of names is not used. */
export type IdPosition = { kind: 'id'; id: bigint; isCommonName: boolean }

/** Delta feed. The last three are values of the first page: see feed-statement.ts. */
type FeedPosition = {
  kind: 'change'
  id: bigint
  change: bigint
  untilChange: bigint
  horizon: bigint
  beganUs: bigint
}

/** Where the first page begins. In a delta feed, this is a time. */
export type Beginning = Position | { kind: 'time'; ms: number }

interface PageRow extends Row, Partial<Omit<FeedPosition, 'kind' | 'id'>> {
  /** The members as text, with the separator of the format. Null: there are none. */
  lines: string | null
  members: number
  id: bigint | null
  isLost?: boolean
}

/** Shorter texts are not indexed, because most names contain them. */
const INDEXED_PART_MIN_LENGTH = 2

/** A page may be empty although another one follows. */
export interface Page {
  lines: string
  members: number
  next: Position | null
}

/** Reads up to `limit` members after a position. Throws `database_restored` if a delta feed must begin again. */
export async function readPage(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  position: Beginning,
  limit: number,
  form: keyof List,
): Promise<Page> {
  const list = position.kind === 'id' ? listById(withRequired(filters), position) : listByChange
  const [row] = await database.query<PageRow>(list[form], valuesOf(list, scope, filters, position, limit + 1))
  if (row?.isLost) throw new AppError('database_restored')
  return {
    lines: row?.lines ?? '',
    members: row?.members ?? 0,
    next: row ? nextOf(list, position, limit, row) : null,
  }
}

export function beginningOf({ updatedSince }: Filters): Beginning {
  if (updatedSince === undefined) return { kind: 'id', id: INT64_MIN, isCommonName: false }
  return { kind: 'time', ms: Date.parse(updatedSince) }
}

/**
 * Reads a page as JSON texts, separated by commas, and the cursor of the next one. Throws `database_restored`, and `invalid_input` for the
 * cursor of another list.
 */
export async function readJsonPage(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  cursor: string | undefined,
  limit: number,
): Promise<{ lines: string; nextCursor: string | null }> {
  const walk = { scope, filters }
  const position = cursor === undefined ? beginningOf(filters) : decodeCursor(walk, cursor)
  if (position === null)
    refuseInput('cursor', 'does not belong to this query: repeat the filters of the first page')
  const { lines, next } = await readPage(database, scope, filters, position, limit, 'page')
  return { lines, nextCursor: next && encodeCursor(walk, next) }
}

type Ids = { ids: bigint[]; next: IdPosition | null }

export async function readIds(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  position: IdPosition,
  limit: number,
): Promise<Ids> {
  const list = listById(withRequired(filters), position)
  const [row] = await database.query<PageRow>(list.ids, valuesOf(list, scope, filters, position, limit))
  const next = row ? nextOf(list, position, limit, row) : null
  const ids = row?.lines ? row.lines.split(',').map(BigInt) : []
  return { ids, next: next?.kind === 'id' ? next : null }
}

/** A million members are 500 statements of some milliseconds. A proxy in front of the console waits at least 30 s. */
const COUNT_MAX_MS = 20_000

/** Throws `unavailable` if it takes longer than COUNT_MAX_MS. */
export async function countMatching(database: Queryable, scope: Scope, filters: Filters): Promise<number> {
  const deadline = performance.now() + COUNT_MAX_MS
  let total = 0
  let position: IdPosition | null = { kind: 'id', id: INT64_MIN, isCommonName: false }
  while (position !== null) {
    if (performance.now() > deadline)
      throw new AppError('unavailable', { message: 'Counting takes too long. Narrow the filter.' })
    const page: Ids = await readIds(database, scope, filters, position, SCAN_MAX)
    total += page.ids.length
    position = page.next
  }
  return total
}

function nextOf(list: List, before: Beginning, limit: number, row: PageRow): Position | null {
  const { lines, members, id, isLost, ...feed } = row
  if (id === null) return null
  if (list === listByChange) return { kind: 'change', id, ...feed } as FeedPosition
  // The list by name ends a page early only if its index finds too many members.
  const isFoundCommon = list === listByDisplayName && members < limit
  return { kind: 'id', id, isCommonName: isFoundCommon || (before.kind === 'id' && before.isCommonName) }
}

/** Returns the list whose index is the most selective. */
function listById(
  { userId, externalId, relationship, tag, source, segment, q }: Filters,
  position: IdPosition,
): ListById {
  if (userId !== undefined) return listByUserId
  if (externalId !== undefined) return listByExternalId
  const isPartIndexed = q !== undefined && [...q].length >= INDEXED_PART_MIN_LENGTH
  if (isPartIndexed && !position.isCommonName) return listByDisplayName
  if (tag !== undefined) return listByTag
  if (source !== undefined) return listBySource
  if (relationship !== undefined) return listByRelationship
  return q === undefined && segment === undefined ? listAll : listWithoutIndex
}

/** The parameters $5 to $11. */
function conditionsOf(filters: Filters): unknown[] {
  const { userId, externalId, relationship, tag, q, segment, source } = withRequired(filters)
  const condition = segment && JSON.stringify(segment.condition)
  return [userId, externalId, relationship, tag, q, condition, source].map((value) => value ?? null)
}

function valuesOf(list: List, scope: Scope, filters: Filters, position: Beginning, limit: number): unknown[] {
  const conditions = conditionsOf(filters)
  const of = [scope.accountId, scope.organizationId]
  switch (position.kind) {
    case 'id':
      return list === listAll ? [...of, position.id, limit] : [...of, position.id, limit, ...conditions]
    case 'change': {
      const { id, change, untilChange, horizon, beganUs } = position
      return [...of, id, limit, ...conditions, change, untilChange, horizon, beganUs, null]
    }
    case 'time':
      // FEED_START is the number before the first change. The greatest id skips all members with that number.
      return [...of, INT64_MAX, limit, ...conditions, null, null, null, null, position.ms]
  }
}

// The cursor of a walk: opaque to clients, bound to the scope and filters of the first page.

/** 72 bits, so that the cursor of another walk does not match by accident. */
const FINGERPRINT_BYTES = 9
const NUMBER_BYTES = 8
/** Microseconds since 1970 until the end of the year 9999, within PostgreSQL's range. */
const TIME_MAX_US = 253_402_300_799_999_999n

type Walk = { scope: Scope; filters: Filters }

export function encodeCursor(walk: Walk, position: Position): string {
  const numbers = numbersOf(position)
  const bytes = Buffer.alloc(FINGERPRINT_BYTES + NUMBER_BYTES * numbers.length)
  fingerprint(walk).copy(bytes)
  for (const [index, number] of numbers.entries())
    bytes.writeBigInt64BE(number, FINGERPRINT_BYTES + NUMBER_BYTES * index)
  return bytes.toString('base64url')
}

/** A walk by id has one number, or two if too many names match. */
function numbersOf(position: Position): bigint[] {
  if (position.kind === 'id') return position.isCommonName ? [position.id, 1n] : [position.id]
  const { id, change, untilChange, horizon, beganUs } = position
  return [id, change, untilChange, horizon, beganUs]
}

function decodeCursor(walk: Walk, cursor: string): Position | null {
  const bytes = Buffer.from(cursor, 'base64url')
  const count = (bytes.length - FINGERPRINT_BYTES) / NUMBER_BYTES
  if (!(walk.filters.updatedSince === undefined ? [1, 2] : [5]).includes(count)) return null
  if (bytes.toString('base64url') !== cursor) return null
  if (!bytes.subarray(0, FINGERPRINT_BYTES).equals(fingerprint(walk))) return null
  const number = (index: number) => bytes.readBigInt64BE(FINGERPRINT_BYTES + NUMBER_BYTES * index)
  if (count < 5) return { kind: 'id', id: number(0), isCommonName: count === 2 }
  const [id, change, untilChange, horizon, beganUs] = [number(0), number(1), number(2), number(3), number(4)]
  if (beganUs < 0 || beganUs > TIME_MAX_US) return null
  return { kind: 'change', id, change, untilChange, horizon, beganUs }
}

function fingerprint({ scope, filters }: Walk): Buffer {
  const names = (Object.keys(filters) as Array<keyof Filters>).sort()
  const identity = [
    String(scope.accountId),
    String(scope.organizationId),
    ...names.map((name) => [name, filters[name]]),
  ]
  return createHash('sha256').update(JSON.stringify(identity)).digest().subarray(0, FINGERPRINT_BYTES)
}
