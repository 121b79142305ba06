/** Removes credentials from the content of pages and support chats before it is stored. Events of LINE are stored unchanged. */

/**
 * Endings of names that hold credentials, such as `line_channel_secret`, `smtpPassword` or `pubsub_token`. Names are compared in
 * lower case, without characters other than letters and digits.
 */
const CREDENTIAL =
  /(?:secret|password|passwd|passphrase|passcode|token|jwt|cookie|bearer|authorization|credential|pwd|verificationpin|(?:api|access|private|secret|auth|signing|encryption|master|shared|session|hmac|account)key|(?:user|db|smtp|imap|mail|proxy|admin|redis|basic)pass)s?$|(?:password|passwd|token|secret)(?:confirmation|hash|digest|value)$/
/** Credentials only as the last word of a name: `smtp_pass`, but not `compass`. */
const CREDENTIAL_WORD = /^(?:pass|passes|pin|pins|otp|otps)$/
/** Tokens that are part of an event. Endpoints and reply APIs need them, and they give access to no account. */
const EVENT_TOKENS = new Set(['replytoken', 'quotetoken', 'markasreadtoken'])

/** Names in the cache. Senders use a few hundred. The limit protects the memory from hostile senders. */
const CACHED_NAMES_MAX = 10_000
/** Characters of a name that are checked, and of a name that is cached. */
const NAME_MAX_LENGTH = 64
const cachedNames = new Map<string, boolean>()

/** Whether a field or a parameter with this name holds a credential. */
export function isCredentialName(name: string): boolean {
  const cached = cachedNames.get(name)
  if (cached !== undefined) return cached
  const isCredential = matchesCredential(name)
  if (cachedNames.size >= CACHED_NAMES_MAX) cachedNames.clear()
  if (name.length <= NAME_MAX_LENGTH) cachedNames.set(name, isCredential)
  return isCredential
}

function matchesCredential(name: string): boolean {
  // Only the end is checked, so a name of a megabyte costs no more than others.
  const end = name.slice(-NAME_MAX_LENGTH)
  const plain = end
    .replace(/[^A-Za-z0-9]/g, '')
    .replace(/\d+$/, '')
    .toLowerCase()
  if (EVENT_TOKENS.has(plain)) return false
  const lastWord = /(?:[A-Z]?[a-z]+|[A-Z]+)(?=[^A-Za-z]*$)/.exec(end)?.[0] ?? ''
  return CREDENTIAL.test(plain) || CREDENTIAL_WORD.test(lastWord.toLowerCase())
}

/** JSON text without credentials in fields, at any depth, and in URLs. @param isDropped whether a field of this name is left out */
export function storedPayload(
  value: unknown,
  isDropped = isCredentialName,
  text = JSON.stringify(value),
): string {
  const kept = hasField(value, isDropped)
    ? JSON.stringify(value, (name, field: unknown) => (isDropped(name) ? undefined : field))
    : text
  return withoutCredentialsInUrls(kept)
}

function hasField(value: unknown, isDropped: (name: string) => boolean): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some((element) => hasField(element, isDropped))
  return Object.entries(value).some(([name, field]) => isDropped(name) || hasField(field, isDropped))
}

/** User name and password of a URL. A URL in a parameter of another one is percent-encoded. */
const USER_IN_URL = /(:\/\/)[\w.~%!$&'()*+,;=:@-]+@|(%3A%2F%2F)(?:(?!%2F|%3F|%23)[\w.~%!$'()*+,;=:-])+%40/gi
/** A parameter with its value, up to the next parameter or the end of the text. */
const PARAMETER = /([?&#;]|%3F|%26|%23)([\w.[\]-]{1,64})(=|%3D)(?:(?!%26|%23|%3F)(?:\\\\|[^?;&#"\\\s]))+/gi

/**
 * Until `liff.init()` ends, the URL of a LIFF page contains the tokens of its visitor, and client libraries send that URL. The URLs
 * of webhooks and referring pages may contain credentials, too.
 */
function withoutCredentialsInUrls(payload: string): string {
  const withoutUsers = /:\/\/|%3A%2F%2F/i.test(payload) ? payload.replace(USER_IN_URL, '$1$2') : payload
  return withoutUsers.replace(PARAMETER, (parameter, start: string, name: string, equals: string) =>
    isCredentialName(name) ? `${start}${name}${equals}[token]` : parameter,
  )
}
