/** Deduplication keys: 16 bytes that are the same whenever the same event is delivered. */
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

/** 128 bits of a SHA-256 over the source and the parts, which cannot run into each other. */
export function hashKey(source: string, ...parts: string[]): Buffer {
  const hash = createHash('sha256').update(source)
  for (const part of parts) hash.update('\0').update(String(part.length)).update('\0').update(part)
  return hash.digest().subarray(0, 16)
}
