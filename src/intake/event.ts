/**
 * What the core knows of an event. Each source translates its vendor's words into this one shape at its door;
 * nothing behind it learns a vendor's words.
 */
import { createHash } from 'node:crypto'
import { USER_ID_MAX_LENGTH } from '../audience/member.ts'
import { isStorableText } from '../postgres/storable.ts'

export type Source = 'line' | 'mbox' | 'tracking'

/** What an event says about the person it names, beyond "seen at that time". */
export type Effect =
  | { type: 'none' }
  | { type: 'relationship'; relationship: 'following' | 'blocked' }
  | { type: 'conversation'; id: string; status: string | null; atMs: number }

export interface IntakeEvent {
  source: Source
  /** the source's own word for it, at most KIND_MAX_LENGTH characters */
  kind: string
  /** deduplication key, a uuid in text form: see ulidKey and hashKey */
  key: string
  occurredAtMs: number
  /** the person whom the event names as its source */
  userId: string | null
  /** people who joined or left, without repetition */
  otherUserIds: string[]
  effect: Effect
  /** the event as received, JSON text */
  payload: string
  /** why the event cannot be applied to members; it is kept all the same */
  failure: string | null
}

/** Events in one delivery of a trusted sender. LINE sends a few; this only bounds what one request may cost. */
export const DELIVERY_MAX_EVENTS = 5_000
/** Characters. LINE's longest event kind has 17. */
export const KIND_MAX_LENGTH = 64
/** The last millisecond of the year 9999: later ones have no ISO 8601 form with four digits. */
const TIME_MAX_MS = 253_402_300_799_999

/** Takes an id as it is, or null where it is absent. Throws an Unusable for anything that cannot be an id. */
export function readUserId(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'string' || value === '') throw new Unusable('the user id is no text')
  if (value.length > USER_ID_MAX_LENGTH) {
    throw new Unusable(`the user id is longer than ${USER_ID_MAX_LENGTH} characters`)
  }
  if (!isStorableText(value)) throw new Unusable('the user id has characters that cannot be stored')
  return value
}

/** Milliseconds since 1970 as a number, or an Unusable. */
export function readTimeMs(value: unknown): number {
  if (typeof value !== 'number' || !(value >= 0 && value <= TIME_MAX_MS)) {
    throw new Unusable('the time is no number of milliseconds between the years 1970 and 9999')
  }
  return Math.trunc(value)
}

/** A word for the kind of event, made safe: the event is kept whatever its kind is called. */
export function readKind(value: unknown): string {
  if (typeof value !== 'string' || value === '') return 'unknown'
  return value.toWellFormed().replaceAll('\0', '').slice(0, KIND_MAX_LENGTH).toWellFormed() || 'unknown'
}

/** What is wrong with an event that can be kept but not applied. */
export class Unusable extends Error {
  override readonly name = 'Unusable'
}

/** JSON text of a parsed value; one nested too deeply for the engine is kept by its beginning alone. */
export function toPayload(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch (error) {
    if (error instanceof RangeError) return JSON.stringify({ omitted: 'nested too deeply to be kept' })
    throw error
  }
}

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'

/**
 * The key of an event that has an id. A ULID is 128 bits itself: it is taken as it is, so that keys grow with
 * time and two ids in the same millisecond keep their order. Any other id is hashed.
 */
export function idKey(source: Source, id: string): string {
  if (source !== 'line' || !ULID.test(id)) return hashKey(source, 'id', id)
  let bits = 0n
  for (const character of id) bits = (bits << 5n) | BigInt(CROCKFORD.indexOf(character))
  return toUuid(bits.toString(16).padStart(32, '0'))
}

/** A key from 128 bits of a hash over parts, which stay apart from each other whatever they contain. */
export function hashKey(source: Source, ...parts: string[]): string {
  const hash = createHash('sha256').update(source)
  for (const part of parts) hash.update('\0').update(String(part.length)).update('\0').update(part)
  return toUuid(hash.digest('hex').slice(0, 32))
}

function toUuid(hex: string): string {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
