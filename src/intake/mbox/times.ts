import { InvalidEvent } from '../event.ts'
import { readTimeMs } from '../event-fields.ts'
import { epochMs, parseTimeText } from '../event-key.ts'

type Fields = Record<string, unknown>

/** Returns the webhook's time, or the time of receipt if it has none. Throws InvalidEvent if it cannot be read. */
export function timeOf(webhook: Fields, kind: string, receivedAtMs: number): number {
  return statedTimeOf(webhook, kind) ?? receivedAtMs
}

/** `created_at` is the time of the event only for the events that report a creation. */
function statedTimeOf(webhook: Fields, kind: string): number | null {
  const createdAtMs = readTime(webhook.created_at)
  if (kind.endsWith('_created') && createdAtMs !== null) return createdAtMs
  return readTime(webhook.updated_at) ?? readTime(webhook.timestamp) ?? createdAtMs
}

/** Returns the time for a webhook's key, which depends on the webhook alone. Null: it has no readable time. */
export function keyTimeOf(webhook: Fields, kind: string): number | null {
  try {
    return statedTimeOf(webhook, kind)
  } catch (error) {
    if (error instanceof InvalidEvent) return null
    throw error
  }
}

/**
 * Returns the time at which the conversation reached its state. Before 2025 (Chatwoot PR #10873) a conversation had no
 * `updated_at`, only the second of its last activity, `timestamp`. Updates in the same second are ordered by their arrival. The time
 * of the event does not use the arrival, because an event in flight during an erasure happened before it.
 */
export function stateTime(conversation: Fields, receivedAtMs: number): number | null {
  const updatedAtMs = readTime(conversation.updated_at)
  const activeAtMs = readTime(conversation.timestamp)
  if (updatedAtMs !== null || activeAtMs === null) return updatedAtMs
  return Math.max(activeAtMs, Math.min(receivedAtMs, activeAtMs + 999))
}

/**
 * Reads ISO 8601, `YYYY-MM-DD HH:MM:SS UTC`, or seconds since 1970, as a number or a text. Returns null if there is no time. Throws
 * InvalidEvent for any other form.
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
