/**
 * Verifies ID tokens of LINE Login, which prove whose page sent a request (OpenID Connect). A page inside LINE gets one from
 * `liff.getIDToken()`. Only ES256 is accepted: HS256 tokens of web logins are signed with a secret that this service does not store.
 */
import { createHash } from 'node:crypto'
import { decodeJwt, errors, jwtVerify } from 'jose'
import { LRUCache } from 'lru-cache'
import { FETCH_PAUSES, type LoginKeySet, LoginKeys } from './login-keys.ts'

const ISSUER = 'https://access.line.me'
const ALGORITHMS = ['ES256']
/** Characters. LINE's tokens have about 1,000. */
const TOKEN_MAX_LENGTH = 4_096
/** For clocks that differ. */
const LEEWAY_SECONDS = 60
/**
 * Verified tokens that are cached, about 3 MiB. A page sends its token with each request, and a verification takes 170 µs. Beyond
 * it the least recently used token is dropped.
 */
const VERIFIED_MAX = 10_000
/** Then a token is verified again, with the keys of that time. */
const VERIFIED_TTL_MS = 10 * 60_000

export type TokenVerdict =
  | { isValid: true; userId: string }
  | {
      isValid: false
      /** completes the sentence "the ID token …" */
      fault: string
      /** another login channel of the account could make it valid */
      isAboutChannel: boolean
    }

export class IdTokens {
  readonly #keys: LoginKeys
  readonly #now: () => number
  /** User ids by a hash of login channel and token, so that no token stays in memory for longer than its request. */
  readonly #verified = new LRUCache<string, string>({ max: VERIFIED_MAX, ttl: VERIFIED_TTL_MS })

  constructor(baseUrl: string, now: () => number, pauses = FETCH_PAUSES) {
    this.#keys = new LoginKeys(baseUrl, pauses)
    this.#now = now
  }

  /** Judges tokens of one request. They wait for LINE's keys together. Null: LINE's keys are needed, and LINE does not answer. */
  async verify(tokens: Iterable<string>, loginChannelId: string): Promise<Map<string, TokenVerdict> | null> {
    const verdicts = new Map<string, TokenVerdict>()
    let waiting = [...tokens]
    for (const keysOf of [() => this.#keys.get(), () => this.#keys.getNewer()]) {
      waiting = this.#judgeWithoutKeys(waiting, loginChannelId, verdicts)
      if (waiting.length === 0) return verdicts
      const keys = await keysOf()
      if (keys === null) return null
      waiting = await this.#judge(waiting, loginChannelId, keys, verdicts)
    }
    for (const token of waiting) verdicts.set(token, invalid('names a key that LINE does not publish'))
    return verdicts
  }

  /** Returns the tokens that only a key can judge. */
  #judgeWithoutKeys(tokens: string[], loginChannelId: string, verdicts: Map<string, TokenVerdict>): string[] {
    return tokens.filter((token) => {
      const verdict = this.#obviousFault(token) ?? this.#cachedVerdict(token, loginChannelId)
      if (verdict !== null) verdicts.set(token, verdict)
      return verdict === null
    })
  }

  /** Events that were queued offline often carry an expired token, whose key LINE may have withdrawn. */
  #obviousFault(token: string): TokenVerdict | null {
    if (token.length > TOKEN_MAX_LENGTH) return invalid(`is longer than ${TOKEN_MAX_LENGTH} characters`)
    try {
      const { exp = Number.POSITIVE_INFINITY } = decodeJwt(token)
      return (exp + LEEWAY_SECONDS) * 1000 <= this.#now() ? EXPIRED : null
    } catch {
      return MALFORMED
    }
  }

  #cachedVerdict(token: string, loginChannelId: string): TokenVerdict | null {
    const userId = this.#verified.get(cacheKey(token, loginChannelId))
    return userId === undefined ? null : { isValid: true, userId }
  }

  /** Returns the tokens that name none of the keys. One after the other, so that a request takes one thread of the pool. */
  async #judge(
    tokens: string[],
    loginChannelId: string,
    keys: LoginKeySet,
    verdicts: Map<string, TokenVerdict>,
  ): Promise<string[]> {
    const unknown: string[] = []
    for (const token of tokens) {
      try {
        const { payload } = await jwtVerify(token, keys, {
          algorithms: ALGORITHMS,
          issuer: ISSUER,
          audience: loginChannelId,
          requiredClaims: ['exp', 'sub'],
          clockTolerance: LEEWAY_SECONDS,
          currentDate: new Date(this.#now()),
        })
        const { sub: userId = '' } = payload
        this.#verified.set(cacheKey(token, loginChannelId), userId)
        verdicts.set(token, { isValid: true, userId })
      } catch (error) {
        if (error instanceof errors.JWKSNoMatchingKey) unknown.push(token)
        else verdicts.set(token, verdictOf(error))
      }
    }
    return unknown
  }
}

const cacheKey = (token: string, loginChannelId: string) =>
  createHash('sha256').update(loginChannelId).update('\0').update(token).digest('base64')

const invalid = (fault: string, isAboutChannel = false): TokenVerdict => ({
  isValid: false,
  fault,
  isAboutChannel,
})

const EXPIRED = invalid('has expired')
const MALFORMED = invalid('is malformed')

/** Throws an error that is not about the token. */
function verdictOf(error: unknown): TokenVerdict {
  if (error instanceof errors.JWTExpired) return EXPIRED
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
