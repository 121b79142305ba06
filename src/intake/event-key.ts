/**
 * Deduplication keys: 16 bytes that are the same whenever the same event is delivered. The table of keys is partitioned by the time
 * with which most keys begin.
 */
import { createHash } from 'node:crypto'

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const CROCKFORD = new Uint8Array(128)
for (const [value, digit] of [...'0123456789ABCDEFGHJKMNPQRSTVWXYZ'].entries())
  CROCKFORD[digit.charCodeAt(0)] = value

/**
 * The key of an event whose id is a ULID: its 128 bits. So keys grow with time, and two ids of one millisecond keep their
 * order. Null: the id is not a ULID.
 */
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
 * 128 bits of a SHA-256 over the source and the parts, which cannot run into each other. For events that an id identifies which has
 * no time: a sender may repeat the id with another time, and it is still the same event.
 */
export function hashKey(source: string, ...parts: string[]): Buffer {
  const hash = createHash('sha256').update(source)
  for (const part of parts) hash.update('\0').update(String(part.length)).update('\0').update(part)
  return hash.digest().subarray(0, 16)
}

/** Keys that begin with 0x04 or more are in the partition of hashes, as if they were after the year 2109. */
const TIMES_END_MS = 0x0400_0000_0000

/**
 * A hash that begins with a time, as a ULID does: 48 bits of milliseconds and 80 bits of the hash.
 * @param timeMs a function of the parts, as the sender wrote it, and so the same in every retry. Without a usable one, all bits are
 * the hash.
 */
export function timedKey(timeMs: number | null, source: string, ...parts: string[]): Buffer {
  const key = hashKey(source, ...parts)
  if (timeMs !== null && timeMs >= 0 && timeMs < TIMES_END_MS) key.writeUIntBE(Math.trunc(timeMs), 0, 6)
  return key
}
