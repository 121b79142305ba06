import { createHmac } from 'node:crypto'
import { equalInConstantTime, type Secret } from '../config/secret.ts'

/**
 * Checks the header x-line-signature: base64 of HMAC-SHA256 over the raw body, keyed with the channel secret. A body that was parsed
 * and written again has other bytes, because LINE escapes non-ASCII text.
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

export function signLine(body: Buffer | string, channelSecret: Secret): string {
  return createHmac('sha256', channelSecret.key()).update(body).digest('base64')
}

export const LINE = 'line'

/** The paths of an account's webhook. The first one is configured on the platform. */
export const deliveryPaths = (id: string): string[] => [`/api/line/${id}`, `/api/Line/${id}`]
