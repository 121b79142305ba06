import { createHmac } from 'node:crypto'
import { equalInConstantTime, type Secret } from '../../config/secret.ts'

/** Allows for clock skew, and lets a captured callback expire. */
const SIGNATURE_TOLERANCE_MS = 5 * 60 * 1000

export interface SignatureHeaders {
  /** x-chatwoot-signature */
  signature: unknown
  /** x-chatwoot-timestamp: seconds since 1970 */
  timestamp: unknown
}

/** Checks Chatwoot's signature: `sha256=` and the hex HMAC-SHA256 over `{timestamp}.{raw body}`, keyed with the webhook's secret. */
export function hasValidChatSignature(
  body: Buffer,
  { signature, timestamp }: SignatureHeaders,
  chatSecret: Secret,
  nowMs: number,
): boolean {
  if (chatSecret.isBlank()) return false
  if (typeof signature !== 'string' || typeof timestamp !== 'string') return false
  if (!/^\d{1,12}$/.test(timestamp)) return false
  if (Math.abs(Number(timestamp) * 1000 - nowMs) > SIGNATURE_TOLERANCE_MS) return false
  return equalInConstantTime(Buffer.from(signature), Buffer.from(signChat(body, timestamp, chatSecret)))
}

/** Returns the value of x-chatwoot-signature for this body. */
export function signChat(body: Buffer | string, timestamp: string, chatSecret: Secret): string {
  const hmac = createHmac('sha256', chatSecret.key()).update(`${timestamp}.`).update(body)
  return `sha256=${hmac.digest('hex')}`
}
