/** The cursor of a walk over an audience: opaque to clients, bound to the scope and filters of the first page. */
import { createHash } from 'node:crypto'
import type { Scope } from '../access/scope.ts'
import { equalInConstantTime } from '../config/secret.ts'
import type { Filters } from './filters.ts'
import type { Position } from './select-list.ts'

/** 72 bits, so that the cursor of another walk does not match by accident. */
const FINGERPRINT_BYTES = 9
const NUMBER_BYTES = 8
/** Microseconds since 1970 until the end of the year 9999, within PostgreSQL's range. */
const TIME_MAX_US = 253_402_300_799_999_999n

/** A cursor of another tenant or another query is rejected. */
export interface Walk {
  scope: Scope
  filters: Filters
}

export function encodeCursor(walk: Walk, position: Position): string {
  const numbers = numbersOf(position)
  const bytes = Buffer.alloc(FINGERPRINT_BYTES + NUMBER_BYTES * numbers.length)
  fingerprint(walk).copy(bytes)
  for (const [index, number] of numbers.entries()) {
    bytes.writeBigInt64BE(number, FINGERPRINT_BYTES + NUMBER_BYTES * index)
  }
  return bytes.toString('base64url')
}

/** A walk by id has one number, or two if too many names match. */
function numbersOf(position: Position): bigint[] {
  if (position.kind === 'id') return position.isCommonName ? [position.id, 1n] : [position.id]
  const { untilChange, horizon, beganUs } = position.walk
  return [position.id, position.change, untilChange, horizon, beganUs]
}

/** Returns the position after which the page begins, or null if the text is not a cursor of this walk. */
export function decodeCursor(walk: Walk, cursor: string): Position | null {
  const bytes = Buffer.from(cursor, 'base64url')
  const count = (bytes.length - FINGERPRINT_BYTES) / NUMBER_BYTES
  if (!(walk.filters.updatedSince === undefined ? [1, 2] : [5]).includes(count)) return null
  if (bytes.toString('base64url') !== cursor) return null
  if (!equalInConstantTime(bytes.subarray(0, FINGERPRINT_BYTES), fingerprint(walk))) return null
  const number = (index: number) => bytes.readBigInt64BE(FINGERPRINT_BYTES + NUMBER_BYTES * index)
  if (count < 5) return { kind: 'id', id: number(0), isCommonName: count === 2 }
  const beganUs = number(4)
  if (beganUs < 0 || beganUs > TIME_MAX_US) return null
  const feed = { untilChange: number(2), horizon: number(3), beganUs }
  return { kind: 'change', id: number(0), change: number(1), walk: feed }
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
