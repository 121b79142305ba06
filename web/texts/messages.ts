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

/** What the service says about one field of a form, or one cell of a fleet file, as it says it. */
export const FIELD_MESSAGES = {
  missing: 'is missing',
  empty: 'must not be empty',
  email: 'must be an email address',
  mailbox: 'must be the address of a mailbox',
  text: 'must not contain the character U+0000 or half a surrogate pair',
  past: 'is in the past. Give a later time. To refuse a client or a key now, revoke it',
  guessable: 'is easy to guess: use several unrelated words, or a password manager',
  operator: 'belongs to another operator already: change that one, or invite it again',
  not_its_name: 'is not the name of what would be removed',
  own_url: "is this service's own URL: a loop",
  organization: 'no organization has this id or name',
  name: 'a new account needs a name',
  channel_id:
    'must be decimal digits. It has no zero in front, and a spreadsheet may have rounded it: format the column as text',
  bot_user_id:
    'must be U and 32 digits 0-9 a-f, as LINE writes user ids. It is compared with the destination of every delivery',
  access_token: 'has a character that no access token has',
  url_segment: 'has characters that a URL would change. Use letters, digits and - _ . ~ only',
  refused:
    'LINE refuses this channel id and secret. Compare both with the LINE Developers Console, "Basic settings". Nothing was changed',
} as const

export type FieldMessageTexts = Record<keyof typeof FIELD_MESSAGES, string>

/** Returns the message unchanged in English, or if no translation is known. The sentences about cells begin with "it". */
export function describeFieldMessage(texts: FieldMessageTexts | null, message: string): string {
  const plain = message.replace(/^it /, '').replace(/\.$/, '')
  const found = Object.entries(FIELD_MESSAGES).find(([, sentence]) => sentence === plain)
  return texts === null || found === undefined ? message : texts[found[0] as keyof FieldMessageTexts]
}
