/** Fields that events of all sources have, read from parsed JSON, and their deduplication keys. */
import { createHash } from 'node:crypto'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { isStorableText } from '../postgres/storable.ts'
import { InvalidEvent, KIND_MAX_LENGTH } from './event.ts'

/** End of the year 9999. Later times have no ISO 8601 form with a four-digit year. */
const TIME_MAX_MS = 253_402_300_799_999
/** Characters. LINE's message ids have 18 digits, its group ids 33 characters. */
const ID_MAX_LENGTH = 64

/** Null: there is none. Throws InvalidEvent for a value that cannot be one. */
export function readUserId(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'string') throw new InvalidEvent('the user id is not a string')
  if (value === '') throw new InvalidEvent('the user id is empty')
  if (value.length > USER_ID_MAX_LENGTH) {
    throw new InvalidEvent(`the user id is longer than ${USER_ID_MAX_LENGTH} characters`)
  }
  if (!isStorableText(value)) throw new InvalidEvent('the user id has characters that cannot be stored')
  return value
}

/** Returns whole milliseconds since 1970. Throws InvalidEvent for anything else. */
export function readTimeMs(value: unknown): number {
  if (typeof value !== 'number' || !(value >= 0 && value <= TIME_MAX_MS)) {
    throw new InvalidEvent('the time is not a number of milliseconds between the years 1970 and 9999')
  }
  return Math.trunc(value)
}

/** Returns milliseconds since 1970, or NaN. A text without a time zone is UTC. */
export function parseTimeText(text: string): number {
  // Without a year, Date.parse would guess one.
  if (!/\d{4}/.test(text)) return Number.NaN
  const hasZone = /(Z|UTC|GMT|:\d\d(\.\d+)? ?[+-]\d\d:?\d\d)$/i.test(text) || /^\d{4}-\d\d-\d\d$/.test(text)
  if (hasZone) return Date.parse(text)
  // PostgreSQL omits the minutes of a zone.
  const hours = /^(.*:\d\d(?:\.\d+)?)([+-]\d\d)$/.exec(text)
  return Date.parse(hours ? `${hours[1]?.replace(' ', 'T')}${hours[2]}:00` : `${text.replace(' ', 'T')}Z`)
}

/** 1e11 is the year 5138 in seconds, and 1973 in milliseconds. */
export const epochMs = (time: number): number => (time > 1e11 ? time : Math.round(time * 1000))

/** Reads ISO 8601, `YYYY-MM-DD HH:MM:SS UTC`, or seconds since 1970, as a number or a text. Throws InvalidEvent for any other form. */
export function readTime(value: unknown): number | null {
  if (value === undefined || value === null || value === '') return null
  const isNumber = typeof value === 'number' || (typeof value === 'string' && /^\d+(\.\d+)?$/.test(value))
  if (isNumber) return readTimeMs(epochMs(Number(value)))
  if (typeof value !== 'string') throw new InvalidEvent('the time has an unknown form')
  return readTimeMs(
    parseTimeText(value.replace(/^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) UTC$/, '$1T$2Z')),
  )
}

/** Of a message, group or room. */
export function readOptionalId(value: unknown): string | null {
  if (typeof value !== 'string' || value === '' || value.length > ID_MAX_LENGTH) return null
  return isStorableText(value) ? value : null
}

export function readKind(value: unknown): string {
  if (typeof value !== 'string' || value === '') return 'unknown'
  return value.toWellFormed().replaceAll('\0', '').slice(0, KIND_MAX_LENGTH).toWellFormed() || 'unknown'
}

/** Levels of arrays and objects. Senders use about ten. JSON.stringify and many endpoints of events fail at about 4,000. */
const MAX_LEVELS = 512
/** Characters. Each level takes two characters, so a shorter text cannot be nested too deeply. */
export const SHALLOW_TEXT_LENGTH = 2 * MAX_LEVELS

export const TOO_DEEP = `the event is nested deeper than ${MAX_LEVELS} levels`

export function isTooDeep(value: unknown, levels = MAX_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  const fields: unknown[] = Array.isArray(value) ? value : Object.values(value)
  for (const field of fields) if (isTooDeep(field, levels - 1)) return true
  return false
}

/** Null replaces what is nested deeper. */
export function cutDeep(value: unknown, levels = MAX_LEVELS): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (levels === 0) return null
  if (Array.isArray(value)) return value.map((element) => cutDeep(element, levels - 1))
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, cutDeep(field, levels - 1)]))
}

// Deduplication keys: 16 bytes that are the same in every delivery of an event. Most keys begin with a time, by which the table of keys
// is partitioned.

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const CROCKFORD = new Uint8Array(128)
for (const [value, digit] of [...'0123456789ABCDEFGHJKMNPQRSTVWXYZ'].entries())
  CROCKFORD[digit.charCodeAt(0)] = value

/** Null: the id is not a ULID, which is 128 bits that begin with a time in milliseconds. */
export function ulidKey(id: string): Buffer | null {
  if (!ULID.test(id)) return null
  // 26 digits of 5 bits, from the right end; the first digit has only 3 bits.
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

/** For events whose id contains no time: a sender may repeat the id with another time, and it is still the same event. */
export function hashKey(source: string, ...parts: string[]): Buffer {
  const hash = createHash('sha256').update(source)
  for (const part of parts) hash.update('\0').update(String(part.length)).update('\0').update(part)
  return hash.digest().subarray(0, 16)
}

/** The year 2109. Keys from 0x04 on are in the partition of hashes. */
const TIMES_END_MS = 0x0400_0000_0000

/** 48 bits of milliseconds and 80 bits of a hash. @param timeMs must depend on the parts alone, so that it is the same in every retry */
export function timedKey(timeMs: number | null, source: string, ...parts: string[]): Buffer {
  const key = hashKey(source, ...parts)
  if (timeMs !== null && timeMs >= 0 && timeMs < TIMES_END_MS) key.writeUIntBE(Math.trunc(timeMs), 0, 6)
  return key
}
