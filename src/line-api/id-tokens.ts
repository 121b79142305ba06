/**
 * Verifies ID tokens of LINE Login (OpenID Connect), which prove the user of a page. A page inside LINE gets one from
 * `liff.getIDToken()`. Only ES256 is accepted. HS256 tokens of web logins are signed with a secret that this service does not store.
 */
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { decodeJwt, errors, jwtVerify } from 'jose'
import { LRUCache } from 'lru-cache'
import { FETCH_PAUSES, type LoginKeySet, LoginKeys } from './login-keys.ts'

const ISSUER = 'https://access.line.me'
const ALGORITHMS = ['ES256']
/** Characters. LINE's tokens have about 1,000. */
const TOKEN_MAX_LENGTH = 4_096
/** Base64 decoders skip white space. With white space, the text of a token would not be found when it is removed from payloads. */
const TOKEN = /^[\w.-]+$/
const LEEWAY_SECONDS = 60
/** About 3 MiB. A page sends its token with each request, and a verification takes 170 µs. */
const VERIFIED_MAX = 10_000
/** Afterwards, a token is verified again with the current keys. */
const VERIFIED_TTL_MS = 10 * 60_000
/** Tokens that are read before other requests proceed: about 0.5 ms. */
const TOKENS_PER_TURN = 20

export type TokenVerdict =
  | { isValid: true; userId: string }
  | {
      isValid: false
      /** Completes the sentence "the ID token …". */
      fault: string
      /** The token may be valid for another login channel. */
      isAboutChannel: boolean
    }

/** `unavailable`: a token needs LINE's keys, and LINE does not respond. `overloaded`: too many tokens of the login channels wait. */
type Verdicts = ReadonlyMap<string, TokenVerdict> | 'unavailable' | 'overloaded'

export class IdTokens {
  readonly #waiting = new WaitingTokens()
  readonly #keys: LoginKeys
  readonly #now: () => number
  /** User ids by a hash of login channels and token, so that tokens do not stay in memory after their requests. */
  readonly #verified = new LRUCache<string, string>({ max: VERIFIED_MAX, ttl: VERIFIED_TTL_MS })
  #lastVerification: Promise<unknown> = Promise.resolve()

  constructor(baseUrl: string, now: () => number, pauses = FETCH_PAUSES) {
    this.#keys = new LoginKeys(baseUrl, pauses)
    this.#now = now
  }

  /** Verifies the tokens of one request. Cached tokens do not wait, so a flood of new tokens does not delay them. */
  async verify(tokens: ReadonlySet<string>, loginChannelIds: string[]): Promise<Verdicts> {
    const audience = loginChannelIds.join(' ')
    const verdicts = new Map<string, TokenVerdict>()
    const unverified: string[] = []
    for await (const token of paced(tokens)) {
      const verdict = this.#obviousFault(token) ?? this.#cachedVerdict(token, audience)
      if (verdict === null) unverified.push(token)
      else verdicts.set(token, verdict)
      // Checked early, so that requests of a flood cost little: reading 500 tokens takes 3 ms.
      if (!this.#waiting.hasRoom(audience, unverified.length)) return 'overloaded'
    }
    if (unverified.length === 0) return verdicts
    if (!this.#waiting.enter(audience, unverified.length)) return 'overloaded'
    try {
      return await this.#verifyAll(unverified, loginChannelIds, verdicts)
    } finally {
      this.#waiting.leave(audience, unverified.length)
    }
  }

  async #verifyAll(
    tokens: string[],
    loginChannelIds: string[],
    verdicts: Map<string, TokenVerdict>,
  ): Promise<Verdicts> {
    const keys = await this.#keys.get()
    if (keys === null) return 'unavailable'
    const unknown: string[] = []
    for await (const token of paced(tokens)) {
      const verdict = await this.#verifyNext(token, loginChannelIds, keys)
      if (verdict === UNKNOWN_KEY) unknown.push(token)
      else verdicts.set(token, verdict)
    }
    if (unknown.length === 0) return verdicts
    const newer = await this.#keys.getNewer()
    if (newer === null) return 'unavailable'
    for await (const token of paced(unknown)) {
      verdicts.set(token, await this.#verifyNext(token, loginChannelIds, newer))
    }
    return verdicts
  }

  /** Needs no key. Events that were queued offline often have an expired token, whose key LINE may have withdrawn. */
  #obviousFault(token: string): TokenVerdict | null {
    if (token.length > TOKEN_MAX_LENGTH) return invalid(`is longer than ${TOKEN_MAX_LENGTH} characters`)
    if (!TOKEN.test(token)) return MALFORMED
    try {
      const { exp = Number.POSITIVE_INFINITY } = decodeJwt(token)
      return (exp + LEEWAY_SECONDS) * 1000 <= this.#now() ? EXPIRED : null
    } catch {
      return MALFORMED
    }
  }

  #cachedVerdict(token: string, audience: string): TokenVerdict | null {
    const userId = this.#verified.get(cacheKey(token, audience))
    return userId === undefined ? null : { isValid: true, userId }
  }

  /**
   * This process verifies one token at a time, so a flood of forged tokens uses only a part of one core. Each request waits with one
   * token at a time, so requests take turns.
   */
  #verifyNext(token: string, loginChannelIds: string[], keys: LoginKeySet): Promise<TokenVerdict> {
    const verification = this.#lastVerification.then(() => this.#verifyNow(token, loginChannelIds, keys))
    this.#lastVerification = verification.catch(() => undefined)
    return verification
  }

  async #verifyNow(token: string, loginChannelIds: string[], keys: LoginKeySet): Promise<TokenVerdict> {
    try {
      const { payload } = await jwtVerify(token, keys, {
        algorithms: ALGORITHMS,
        issuer: ISSUER,
        audience: loginChannelIds,
        requiredClaims: ['exp', 'sub'],
        clockTolerance: LEEWAY_SECONDS,
        currentDate: new Date(this.#now()),
      })
      const { sub: userId } = payload
      if (typeof userId !== 'string') return invalid('has no valid claim sub')
      this.#verified.set(cacheKey(token, loginChannelIds.join(' ')), userId)
      return { isValid: true, userId }
    } catch (error) {
      return verdictOf(error)
    }
  }
}

async function* paced(tokens: Iterable<string>): AsyncGenerator<string> {
  let count = 0
  for (const token of tokens) {
    count += 1
    if (count % TOKENS_PER_TURN === 0) await setImmediate()
    yield token
  }
}

const cacheKey = (token: string, audience: string) =>
  createHash('sha256').update(audience).update('\0').update(token).digest('base64')

const invalid = (fault: string, isAboutChannel = false): TokenVerdict => ({
  isValid: false,
  fault,
  isAboutChannel,
})

const EXPIRED = invalid('has expired')
const MALFORMED = invalid('is malformed')
const UNKNOWN_KEY = invalid('has a key id that LINE does not publish')

/** Throws the error if it does not concern the token. */
function verdictOf(error: unknown): TokenVerdict {
  if (error instanceof errors.JWTExpired) return EXPIRED
  if (error instanceof errors.JWKSNoMatchingKey) return UNKNOWN_KEY
  if (error instanceof errors.JWSSignatureVerificationFailed) return invalid('has a wrong signature')
  if (error instanceof errors.JOSEAlgNotAllowed) return invalid('is not signed with ES256')
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.claim === 'iss') return invalid('was not issued by LINE')
    if (error.claim === 'aud') return invalid("is for another login channel than the account's", true)
    return invalid(`has no valid claim ${error.claim}`)
  }
  if (error instanceof errors.JOSEError) return MALFORMED
  throw error
}

// Limits the ID tokens, and so the requests in memory, that wait for a verification or for LINE's keys.

/** About a second of verifications: 5,000 × 170 µs = 0.85 s. */
const WAITING_MAX = 5_000

/** A login channel may have as many as it leaves free: half of all if it is alone. So others always find room. */
class WaitingTokens {
  readonly #byChannel = new Map<string, number>()
  #total = 0

  hasRoom(audience: string, count: number): boolean {
    return count === 0 || this.#waitingOf(audience) + count <= WAITING_MAX - this.#total
  }

  enter(audience: string, count: number): boolean {
    if (!this.hasRoom(audience, count)) return false
    this.#count(audience, this.#waitingOf(audience) + count, count)
    return true
  }

  leave(audience: string, count: number): void {
    this.#count(audience, this.#waitingOf(audience) - count, -count)
  }

  #waitingOf(audience: string): number {
    return this.#byChannel.get(audience) ?? 0
  }

  #count(audience: string, waiting: number, change: number): void {
    this.#total += change
    if (waiting === 0) this.#byChannel.delete(audience)
    else this.#byChannel.set(audience, waiting)
  }
}
