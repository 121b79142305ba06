/** When a webhook of the support chat happened, and when a conversation reached its state. */
import { InvalidEvent } from '../event.ts'
import { readTimeMs } from '../event-fields.ts'
import { epochMs, parseTimeText } from '../event-time.ts'

type Fields = Record<string, unknown>

/** The time that the webhook states, or else that of its receipt. Throws InvalidEvent if it cannot be read. */
export function timeOf(webhook: Fields, kind: string, receivedAtMs: number): number {
  return statedTimeOf(webhook, kind) ?? receivedAtMs
}

/** `created_at` is the time of the event only for the events that report a creation. */
function statedTimeOf(webhook: Fields, kind: string): number | null {
  const createdAtMs = readTime(webhook.created_at)
  if (kind.endsWith('_created') && createdAtMs !== null) return createdAtMs
  return readTime(webhook.updated_at) ?? readTime(webhook.timestamp) ?? createdAtMs
}

/** The time in a webhook's key. It depends on nothing but the webhook. Null: the webhook states none that can be read. */
export function keyTimeOf(webhook: Fields, kind: string): number | null {
  try {
    return statedTimeOf(webhook, kind)
  } catch (error) {
    if (error instanceof InvalidEvent) return null
    throw error
  }
}

/**
 * When the conversation reached its state. Before 2025 (Chatwoot PR #10873) it had no `updated_at`, only the second of its
 * last activity, `timestamp`. Updates that share a second are ordered by their arrival within it. That is not used as the
 * time of the event, because an event in flight while its person is erased happened before the erasure.
 */
export function stateTime(conversation: Fields, receivedAtMs: number): number | null {
  const updatedAtMs = readTime(conversation.updated_at)
  const activeAtMs = readTime(conversation.timestamp)
  if (updatedAtMs !== null || activeAtMs === null) return updatedAtMs
  return Math.max(activeAtMs, Math.min(receivedAtMs, activeAtMs + 999))
}

/**
 * A time as Chatwoot writes it: ISO 8601, `YYYY-MM-DD HH:MM:SS UTC`, or seconds since 1970, whole or with a fraction, as a
 * number or text. Null: there is none. Throws InvalidEvent for any other form.
 */
function readTime(value: unknown): number | null {
  if (value === undefined || value === null || value === '') return null
  const isNumber = typeof value === 'number' || (typeof value === 'string' && /^\d+(\.\d+)?$/.test(value))
  if (isNumber) return readTimeMs(epochMs(Number(value)))
  if (typeof value !== 'string') throw new InvalidEvent('the time has an unknown form')
  return readTimeMs(
    parseTimeText(value.replace(/^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) UTC$/, '$1T$2Z')),
  )
}
