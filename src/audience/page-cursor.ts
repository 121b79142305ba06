/** Where a walk over an audience goes on: opaque to clients, bound to the scope and filters it began with. */
import { createHash } from 'node:crypto'
import type { Scope } from '../access/scope.ts'
import { equalInConstantTime } from '../secret.ts'

/** Bytes of the fingerprint: enough that a cursor of another walk is not taken for this one's by accident. */
const FINGERPRINT_BYTES = 9
const ID_BYTES = 8

/** What a cursor belongs to: another tenant's, or another query's, is not accepted. */
export interface Walk {
  scope: Scope
  /** the filters of the query, without limit and cursor */
  filters: Record<string, unknown>
}

export function encodeCursor(walk: Walk, lastId: bigint): string {
  const bytes = Buffer.alloc(FINGERPRINT_BYTES + ID_BYTES)
  fingerprint(walk).copy(bytes)
  bytes.writeBigInt64BE(lastId, FINGERPRINT_BYTES)
  return bytes.toString('base64url')
}

/** The id after which the page begins, or null for anything that is no cursor of this walk. */
export function decodeCursor(walk: Walk, cursor: string): bigint | null {
  const bytes = Buffer.from(cursor, 'base64url')
  if (bytes.length !== FINGERPRINT_BYTES + ID_BYTES || bytes.toString('base64url') !== cursor) return null
  if (!equalInConstantTime(bytes.subarray(0, FINGERPRINT_BYTES), fingerprint(walk))) return null
  return bytes.readBigInt64BE(FINGERPRINT_BYTES)
}

function fingerprint({ scope, filters }: Walk): Buffer {
  const names = Object.keys(filters).sort()
  const identity = [
    String(scope.channelOaId),
    String(scope.organizationId),
    ...names.map((name) => [name, filters[name]]),
  ]
  return createHash('sha256').update(JSON.stringify(identity)).digest().subarray(0, FINGERPRINT_BYTES)
}
