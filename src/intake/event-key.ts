/**
 * Deduplication keys: 16 bytes that are the same in every delivery of an event. Most keys begin with a time, by which the table of
 * keys is partitioned.
 */
import { createHash } from 'node:crypto'

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const CROCKFORD = new Uint8Array(128)
for (const [value, digit] of [...'0123456789ABCDEFGHJKMNPQRSTVWXYZ'].entries())
  CROCKFORD[digit.charCodeAt(0)] = value

/** Returns the 128 bits of an event id that is a ULID, otherwise null. ULIDs begin with a time in milliseconds. */
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

/**
 * Returns 128 bits of a SHA-256 over the source and the length-prefixed parts. Use it for events whose id contains no time: a
 * sender may repeat the id with another time, and it is still the same event.
 */
export function hashKey(source: string, ...parts: string[]): Buffer {
  const hash = createHash('sha256').update(source)
  for (const part of parts) hash.update('\0').update(String(part.length)).update('\0').update(part)
  return hash.digest().subarray(0, 16)
}

/** The year 2109. Keys from 0x04 on are in the partition of hashes. */
const TIMES_END_MS = 0x0400_0000_0000

/**
 * Returns a hash that begins with a time, as a ULID does: 48 bits of milliseconds and 80 bits of the hash.
 * @param timeMs must depend on the parts alone, so that it is the same in every retry; without a usable time, all bits are the hash
 */
export function timedKey(timeMs: number | null, source: string, ...parts: string[]): Buffer {
  const key = hashKey(source, ...parts)
  if (timeMs !== null && timeMs >= 0 && timeMs < TIMES_END_MS) key.writeUIntBE(Math.trunc(timeMs), 0, 6)
  return key
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

/** Converts seconds or milliseconds to milliseconds. 1e11 is the year 5138 in seconds, and 1973 in milliseconds. */
export const epochMs = (time: number): number => (time > 1e11 ? time : Math.round(time * 1000))
