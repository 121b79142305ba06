import { createHmac } from 'node:crypto'
import { equalInConstantTime, type Secret } from '../../secret.ts'

/** A signed callback may be this old, or this far ahead: clocks differ, replays should not live long. */
const SIGNATURE_TOLERANCE_MS = 5 * 60 * 1000

export interface SignatureHeaders {
  /** x-chatwoot-signature */
  signature: unknown
  /** x-chatwoot-timestamp, seconds since 1970 */
  timestamp: unknown
}

/**
 * Chatwoot's signature: `sha256=` and the hex HMAC-SHA256 over `{timestamp}.{raw body}`, keyed with the
 * webhook's secret.
 */
export function hasValidChatSignature(
  body: Buffer,
  { signature, timestamp }: SignatureHeaders,
  chatSecret: Secret,
  nowMs: number,
): boolean {
  if (typeof signature !== 'string' || typeof timestamp !== 'string') return false
  if (!/^\d{1,12}$/.test(timestamp)) return false
  if (Math.abs(Number(timestamp) * 1000 - nowMs) > SIGNATURE_TOLERANCE_MS) return false
  return equalInConstantTime(Buffer.from(signature), Buffer.from(signChat(body, timestamp, chatSecret)))
}

/** What the support chat would put in x-chatwoot-signature. */
export function signChat(body: Buffer | string, timestamp: string, chatSecret: Secret): string {
  const hmac = createHmac('sha256', chatSecret.key()).update(`${timestamp}.`).update(body)
  return `sha256=${hmac.digest('hex')}`
}
