/**
 * What pages and support chats send, as it is stored: as JSON text without credentials. Events of LINE are stored as LINE sends
 * them.
 */

/**
 * Names of credentials in lower case, of letters and digits only: what ends so, such as `line_channel_secret`, `smtpPassword` or
 * `pubsub_token`.
 */
const CREDENTIAL =
  /(?:secret|password|passwd|passphrase|passcode|token|jwt|cookie|bearer|authorization|credential|pwd|verificationpin|(?:api|access|private|secret|auth|signing|encryption|master|shared|session|hmac|account)key|(?:user|db|smtp|imap|mail|proxy|admin|redis|basic)pass)s?$|(?:password|passwd|token|secret)(?:confirmation|hash|digest|value)$/
/** Words that name a credential only where a name ends with them as a word of its own: `smtp_pass`, but not `compass`. */
const CREDENTIAL_WORD = /^(?:pass|passes|pin|pins|otp|otps)$/
/** Tokens that are part of an event. Endpoints and reply APIs need them, and they open no account. */
const EVENT_TOKENS = new Set(['replytoken', 'quotetoken', 'markasreadtoken'])

/** Names whose verdict is cached. Senders use a few hundred; a hostile one must not fill the memory. */
const VERDICTS_MAX = 10_000
/** Characters of a name that are checked, and of a name whose verdict is cached. */
const NAME_MAX_LENGTH = 64
const verdicts = new Map<string, boolean>()

/** Whether a field or a parameter with this name holds a credential. */
export function isCredentialName(name: string): boolean {
  const cached = verdicts.get(name)
  if (cached !== undefined) return cached
  const verdict = matchesCredential(name)
  if (verdicts.size >= VERDICTS_MAX) verdicts.clear()
  if (name.length <= NAME_MAX_LENGTH) verdicts.set(name, verdict)
  return verdict
}

function matchesCredential(name: string): boolean {
  // The end decides, so a name of a megabyte costs no more than others.
  const end = name.slice(-NAME_MAX_LENGTH)
  const plain = end
    .replace(/[^A-Za-z0-9]/g, '')
    .replace(/\d+$/, '')
    .toLowerCase()
  if (EVENT_TOKENS.has(plain)) return false
  const lastWord = /(?:[A-Z]?[a-z]+|[A-Z]+)(?=[^A-Za-z]*$)/.exec(end)?.[0] ?? ''
  return CREDENTIAL.test(plain) || CREDENTIAL_WORD.test(lastWord.toLowerCase())
}

/**
 * The value as JSON text without credentials: neither under the names of credentials, at any depth, nor in addresses.
 * @param isDropped decides by the name of a field whether the field is left out
 */
export function storedPayload(
  value: unknown,
  isDropped = isCredentialName,
  text = JSON.stringify(value),
): string {
  const kept = hasField(value, isDropped)
    ? JSON.stringify(value, (name, field: unknown) => (isDropped(name) ? undefined : field))
    : text
  return withoutCredentialsInAddresses(kept)
}

function hasField(value: unknown, isDropped: (name: string) => boolean): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some((element) => hasField(element, isDropped))
  return Object.entries(value).some(([name, field]) => isDropped(name) || hasField(field, isDropped))
}

/** A user name and a password before the host. An address may be a parameter of another one, and is then percent-encoded. */
const USER_IN_ADDRESS =
  /(:\/\/)[\w.~%!$&'()*+,;=:@-]+@|(%3A%2F%2F)(?:(?!%2F|%3F|%23)[\w.~%!$'()*+,;=:-])+%40/gi
/** A parameter, and its value up to the next parameter or the end of the text. */
const PARAMETER = /([?&#;]|%3F|%26|%23)([\w.[\]-]{1,64})(=|%3D)(?:(?!%26|%23|%3F)(?:\\\\|[^?;&#"\\\s]))+/gi

/**
 * Until `liff.init()` ends, the address of a LIFF page contains the tokens of its visitor, and libraries send that address. The
 * addresses of webhooks and referring pages contain credentials, too.
 */
function withoutCredentialsInAddresses(payload: string): string {
  const withoutUsers = /:\/\/|%3A%2F%2F/i.test(payload) ? payload.replace(USER_IN_ADDRESS, '$1$2') : payload
  return withoutUsers.replace(PARAMETER, (parameter, start: string, name: string, equals: string) =>
    isCredentialName(name) ? `${start}${name}${equals}[token]` : parameter,
  )
}
