/** A range of receipt times, and a position in it. */
import { INT64_MAX, INT64_MIN } from '../../http/path-id.ts'
import { refuseInput } from '../../http/validate.ts'

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
  if (given.to !== undefined && toUs < fromUs) refuseInput('to', 'must not be before from')
  const after = given.after === undefined ? null : readPosition(given.after)
  return { fromUs, toUs: toUs < endUs ? toUs : endUs, after, source: given.source ?? null }
}

/** Reads a time with a zone, or a date, which begins at 00:00 UTC. Throws `invalid_input`. Returns microseconds since 1970. */
function readTimeUs(name: string, text: string): bigint {
  // A plus sign that a client did not escape arrives as a space.
  const [, day = '', time = 'T00:00Z'] =
    /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+ -]\d\d:\d\d))?$/.exec(text) ?? []
  const ms = isDay(day) ? Date.parse(day + time.replace(' ', '+')) : Number.NaN
  if (Number.isNaN(ms)) refuseInput(name, 'must be a time such as 2026-11-01T09:00:00Z, or a date')
  return BigInt(ms) * 1_000n
}

/** Date.parse reads February 30 as March 2. */
function isDay(text: string): boolean {
  const day = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(day.getTime()) && day.toISOString().startsWith(text)
}

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
