/** Messages of the service that a person meets in the console. The service sends English. */
import { ERROR_MESSAGES } from '../../src/errors.ts'

const CODES = [
  ...(['forbidden', 'external_id_taken', 'stale_version', 'body_too_large', 'rate_limited'] as const),
  ...(['stream_open', 'count_changed', 'replay_running', 'too_many_jobs', 'account_busy'] as const),
  ...(['busy', 'too_many_bodies', 'unavailable', 'secret_unreadable', 'platform_unavailable'] as const),
  ...(['internal', 'invalid_input'] as const),
]

export type MessageTexts = Record<(typeof CODES)[number], string>

/** Returns the message unchanged in English, or if it is a more precise one than that of its code. */
export function describeMessage(texts: MessageTexts | null, message: string): string {
  const code = CODES.find((each) => ERROR_MESSAGES[each] === message)
  return texts === null || code === undefined ? message : texts[code]
}
