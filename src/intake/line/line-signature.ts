import { createHmac } from 'node:crypto'
import { equalInConstantTime, type Secret } from '../../config/secret.ts'

/**
 * Checks the header x-line-signature: base64 of HMAC-SHA256 over the raw body, keyed with the channel secret. It covers the
 * bytes as they were sent: LINE escapes non-ASCII text, so a body that was parsed and written again has other bytes.
 * @see https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature/
 */
export function hasValidLineSignature(
  body: Buffer,
  signature: unknown,
  channelSecret: Secret | null,
): boolean {
  if (channelSecret === null || typeof signature !== 'string') return false
  return equalInConstantTime(Buffer.from(signature), Buffer.from(signLine(body, channelSecret)))
}

/** The value of x-line-signature that LINE sends with this body. */
export function signLine(body: Buffer | string, channelSecret: Secret): string {
  return createHmac('sha256', channelSecret.key()).update(body).digest('base64')
}
