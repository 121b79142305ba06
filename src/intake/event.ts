/**
 * What the core knows of an event. Each source translates its vendor's words into this one shape at its door;
 * nothing behind it learns a vendor's words.
 */
import { createHash } from 'node:crypto'
import { USER_ID_MAX_LENGTH } from '../audience/member.ts'
import { isStorableText } from '../postgres/storable.ts'

export type Source = 'line' | 'mbox' | 'tracking'

/** What an event says beyond "seen at that time". */
export type Effect =
  | { type: 'none' }
  | { type: 'relationship'; relationship: 'following' | 'blocked' }
  | { type: 'conversation'; id: string; status: string | null; atMs: number }
  /** the sender took a message back: its content must go */
  | { type: 'unsend'; messageId: string }
  /** the platform suspended the account, or gave it back */
  | { type: 'suspension'; suspended: boolean }

export interface IntakeEvent {
  source: Source
  /** the source's own word for it, at most KIND_MAX_LENGTH characters */
  kind: string
  /** deduplication key, 16 bytes: see idKey and hashKey */
  key: Buffer
  occurredAtMs: number
  /** the person whom the event names as its source */
  userId: string | null
  /** people who joined or left, without repetition */
  otherUserIds: string[]
  /** the platform's id of the message that the event brings */
  messageId: string | null
  effect: Effect
  /** the event as received, JSON text; null where it was erased before the event could be applied */
  payload: string | null
  /** why the event cannot be applied to members; it is kept all the same */
  failure: string | null
}

/** Events in one delivery of a trusted sender. LINE sends a few; this only bounds what one request may cost. */
export const DELIVERY_MAX_EVENTS = 5_000
/** Characters. LINE's longest event kind has 17. */
const KIND_MAX_LENGTH = 64
/** The last millisecond of the year 9999: later ones have no ISO 8601 form with four digits. */
const TIME_MAX_MS = 253_402_300_799_999

/** Takes an id as it is, or null where it is absent. Throws an InvalidEvent for anything that cannot be an id. */
export function readUserId(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'string' || value === '') throw new InvalidEvent('the user id is no text')
  if (value.length > USER_ID_MAX_LENGTH) {
    throw new InvalidEvent(`the user id is longer than ${USER_ID_MAX_LENGTH} characters`)
  }
  if (!isStorableText(value)) throw new InvalidEvent('the user id has characters that cannot be stored')
  return value
}

/** Milliseconds since 1970 of a time in text. Without a zone it is UTC, wherever this service runs. Else NaN. */
export function parseTimeText(text: string): number {
  // Without a year it is a guess of the engine's.
  if (!/\d{4}/.test(text)) return Number.NaN
  const hasZone = /(Z|UTC|GMT|:\d\d(\.\d+)? ?[+-]\d\d:?\d\d)$/i.test(text) || /^\d{4}-\d\d-\d\d$/.test(text)
  if (hasZone) return Date.parse(text)
  // PostgreSQL leaves the minutes of a zone out.
  const hours = /^(.*:\d\d(?:\.\d+)?)([+-]\d\d)$/.exec(text)
  return Date.parse(hours ? `${hours[1]?.replace(' ', 'T')}${hours[2]}:00` : `${text.replace(' ', 'T')}Z`)
}

/** Milliseconds since 1970, from them or from seconds: beyond the year 5138 in seconds it is milliseconds. */
export const epochMs = (time: number): number => (time > 1e11 ? time : Math.round(time * 1000))

/** Milliseconds since 1970 as a number, or an InvalidEvent. */
export function readTimeMs(value: unknown): number {
  if (typeof value !== 'number' || !(value >= 0 && value <= TIME_MAX_MS)) {
    throw new InvalidEvent('the time is no number of milliseconds between the years 1970 and 9999')
  }
  return Math.trunc(value)
}

/** Characters. LINE's message ids have 18 digits. */
const MESSAGE_ID_MAX_LENGTH = 64

/** An id by which a message may be taken back later, or null where there is none that could be. */
export function readMessageId(value: unknown): string | null {
  if (typeof value !== 'string' || value === '' || value.length > MESSAGE_ID_MAX_LENGTH) return null
  return isStorableText(value) ? value : null
}

/** A word for the kind of event, made safe: the event is kept whatever its kind is called. */
export function readKind(value: unknown): string {
  if (typeof value !== 'string' || value === '') return 'unknown'
  return value.toWellFormed().replaceAll('\0', '').slice(0, KIND_MAX_LENGTH).toWellFormed() || 'unknown'
}

/** What is wrong with an event that can be kept but not applied. */
export class InvalidEvent extends Error {
  override readonly name = 'InvalidEvent'
}

/**
 * JSON text of a parsed value, however deeply it is nested: JSON.parse reads deeper than JSON.stringify writes.
 * @param writeDeep what is done with one that is too deep for JSON.stringify
 */
export function toPayload(value: unknown, writeDeep: (value: unknown) => string = stringifyDeep): string {
  try {
    return JSON.stringify(value)
  } catch (error) {
    if (error instanceof RangeError) return writeDeep(value)
    throw error
  }
}

/** JSON.stringify for parsed values, with a stack of its own: what is open, and how far it is written. */
function stringifyDeep(value: unknown): string {
  let text = ''
  const open: Array<{ inner: object; names: string[] | null; next: number }> = []
  const write = (inner: unknown) => {
    if (typeof inner !== 'object' || inner === null) {
      text += JSON.stringify(inner)
      return
    }
    text += Array.isArray(inner) ? '[' : '{'
    open.push({ inner, names: Array.isArray(inner) ? null : Object.keys(inner), next: 0 })
  }
  write(value)
  for (let top = open.at(-1); top !== undefined; top = open.at(-1)) {
    const { inner, names, next } = top
    const length = names === null ? (inner as unknown[]).length : names.length
    if (next === length) {
      text += names === null ? ']' : '}'
      open.pop()
      continue
    }
    top.next += 1
    if (next > 0) text += ','
    if (names === null) {
      write((inner as unknown[])[next])
    } else {
      const name = names[next] as string
      text += `${JSON.stringify(name)}:`
      write((inner as Record<string, unknown>)[name])
    }
  }
  return text
}

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const CROCKFORD = new Uint8Array(128)
for (const [value, digit] of [...'0123456789ABCDEFGHJKMNPQRSTVWXYZ'].entries())
  CROCKFORD[digit.charCodeAt(0)] = value

/**
 * The key of an event that has an id. A ULID is 128 bits itself: it is taken as it is, so that keys grow with
 * time and two ids in the same millisecond keep their order. Any other id is hashed.
 */
export function idKey(source: Source, id: string): Buffer {
  if (source !== 'line' || !ULID.test(id)) return hashKey(source, 'id', id)
  // 26 digits of 5 bits, the first of them 3 bits, from the right end.
  const key = Buffer.alloc(16)
  let bits = 0
  let count = 0
  for (let digit = 25, byte = 15; byte >= 0; digit -= 1) {
    bits |= (CROCKFORD[id.charCodeAt(digit)] ?? 0) << count
    count += 5
    if (count >= 8) {
      key[byte] = bits & 0xff
      byte -= 1
      bits >>>= 8
      count -= 8
    }
  }
  return key
}

/** A key from 128 bits of a hash over parts, which stay apart from each other whatever they contain. */
export function hashKey(source: Source, ...parts: string[]): Buffer {
  const hash = createHash('sha256').update(source)
  for (const part of parts) hash.update('\0').update(String(part.length)).update('\0').update(part)
  return hash.digest().subarray(0, 16)
}
