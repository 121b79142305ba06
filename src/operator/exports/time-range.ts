/** A range of receipt times, and a position in it. */
import { INT64_MAX, INT64_MIN } from '../../http/path-id.ts'
import { refuseInput } from '../../http/validate.ts'
import { readTime } from '../read-time.ts'

/** An event in the order of receipt. Events that one transaction stored have the same time. */
export interface Position {
  /** microseconds since 1970 */
  us: bigint
  id: bigint
}

/** Events by the time at which they were received, which begins inclusively and ends exclusively. */
export interface EventRange {
  /** microseconds since 1970 */
  fromUs: bigint
  toUs: bigint
  /** null: from the beginning */
  after: Position | null
  /** null: all sources */
  source: string | null
}

/**
 * Throws `invalid_input`.
 * @param endUs of exports that begin now
 */
export function readRange(
  given: { from: string; to?: string; after?: string; source?: string },
  endUs: bigint,
): EventRange {
  const fromUs = readTimeUs('from', given.from)
  const toUs = given.to === undefined ? endUs : readTimeUs('to', given.to)
  if (given.to !== undefined && toUs < fromUs)
    refuseInput('to', 'must not be before the beginning of the range')
  const after = given.after === undefined ? null : readPosition(given.after)
  return { fromUs, toUs: toUs < endUs ? toUs : endUs, after, source: given.source ?? null }
}

const readTimeUs = (field: string, text: string): bigint => BigInt(readTime(field, text)) * 1_000n

/** 16 digits reach the year 2286. */
const POSITION = /^(\d{1,16})\.(\d{1,19})$/

/** Throws `invalid_input`. */
function readPosition(text: string): Position {
  const [, us, id] = POSITION.exec(text) ?? []
  if (us === undefined || id === undefined || BigInt(id) > INT64_MAX)
    refuseInput('after', 'must be the position of an exported line')
  return { us: BigInt(us), id: BigInt(id) }
}

export const positionText = ({ us, id }: Position): string => `${us}.${id}`

/** Where an export begins: after the position, and not before `fromUs`. */
export function beginningAt(fromUs: bigint, after: Position | null): Position {
  return after !== null && after.us >= fromUs ? after : { us: fromUs, id: INT64_MIN }
}
