/** Events as they are stored: as JSON text, without the credentials that a sender included. */
import { toJsonText } from './json-text.ts'

/**
 * Names of credentials, without case, underscores and hyphens: what ends so, such as `line_channel_secret`, `smtpPassword` or
 * `pubsub_token`. Chatwoot's inbox events carry the whole record of their channel.
 */
const CREDENTIAL =
  /(secret|password|passwd|passphrase|token|apikey|accesskey|privatekey|authorization|credential|credentials)$/
/** Tokens that are part of an event. Endpoints and reply APIs need them, and they open no account. */
const EVENT_TOKENS = new Set(['replytoken', 'quotetoken', 'markasreadtoken'])

/** Finds text that may name a credential: a hundredth of the time that reading it would take. */
const MAY_NAME_CREDENTIAL =
  /(?:secret|passw(?:or)?d|passphrase|(?<!reply|quote|mark_?as_?read)token|api[_-]?key|access[_-]?key|private[_-]?key|authorization|credentials?)"\s*:/i

export function isCredentialName(name: string): boolean {
  const plain = name.toLowerCase().replace(/[_-]/g, '')
  return CREDENTIAL.test(plain) && !EVENT_TOKENS.has(plain)
}

/**
 * The value as JSON text without credentials, at any depth.
 * @param writeDeep handles a value that is too deep for JSON.stringify
 */
export function storedPayload(value: unknown, writeDeep?: (value: unknown) => string): string {
  const text = toJsonText(value, writeDeep)
  return withoutCredentials(text, writeDeep)
}

/** The same for JSON text. */
export function withoutCredentials(text: string, writeDeep?: (value: unknown) => string): string {
  if (!MAY_NAME_CREDENTIAL.test(text)) return text
  const copy = JSON.parse(text) as unknown
  deleteCredentials(copy)
  return toJsonText(copy, writeDeep)
}

/** Without recursion, because JSON.parse reads deeper than a stack goes. */
function deleteCredentials(root: unknown): void {
  const waiting = [root]
  for (let value = waiting.pop(); value !== undefined; value = waiting.pop()) {
    if (typeof value !== 'object' || value === null) continue
    if (Array.isArray(value)) {
      for (const item of value) if (typeof item === 'object' && item !== null) waiting.push(item)
      continue
    }
    for (const [name, field] of Object.entries(value)) {
      if (isCredentialName(name)) delete (value as Record<string, unknown>)[name]
      else if (typeof field === 'object' && field !== null) waiting.push(field)
    }
  }
}
