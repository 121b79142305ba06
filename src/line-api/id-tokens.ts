/**
 * Verifies ID tokens of LINE Login (OpenID Connect), which prove the user of a page. A page inside LINE gets one from
 * `liff.getIDToken()`. Only ES256 is accepted. HS256 tokens of web logins are signed with a secret that this service does not store.
 */
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import {
  type CryptoKey,
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JSONWebKeySet,
  jwtVerify,
} from 'jose'
import { LRUCache } from 'lru-cache'
import { AppError } from '../errors.ts'
import type { Fetch } from '../http/egress-proxy.ts'
import { idTokenVerified } from '../observability/facts.ts'
import { callPlatform, type Platform } from './call.ts'

const ISSUER = 'https://access.line.me'
const ALGORITHM = 'ES256'
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
/** Tokens, and so requests in memory, that wait for a verification or for LINE's keys: 5,000 × 170 µs = 0.85 s. */
const WAITING_MAX = 5_000

/** `jwks_uri` of https://access.line.me/.well-known/openid-configuration. */
const KEYS_PATH = '/oauth2/v2.1/certs'
const KEYS_TIMEOUTS = { attemptMs: 2_000, callMs: 3_000 }
/** Two fetches are at least so far apart. Anybody can send tokens with key ids that do not exist. */
const KEYS_INTERVAL_MS = 3_000
/** Older keys are refreshed in the background, so an outage of LINE does not affect tokens with cached keys. */
const KEYS_REFRESH_MS = 10 * 60_000
/** Older keys are not used, because LINE may have withdrawn them. */
const KEYS_MAX_AGE_MS = 24 * 3_600_000
const RETRY_AFTER_SECONDS = 5

export type TokenVerdict =
  | { isValid: true; userId: string }
  | {
      isValid: false
      /** Completes the sentence "the ID token …". */
      fault: string
      /** The token may be valid for another login channel. */
      isAboutChannel: boolean
    }

export class IdTokens {
  readonly #platform: Platform
  readonly #now: () => number
  readonly #keys: ReturnType<typeof createRemoteJWKSet>
  readonly #keysIntervalMs: number
  #keysRequestedAtMs = Number.NEGATIVE_INFINITY
  /** The cached keys were requested then. */
  #keysFetchedAtMs = Number.NEGATIVE_INFINITY
  /** User ids by a hash of login channels and token, so that tokens do not stay in memory after their requests. */
  readonly #verified = new LRUCache<string, string>({ max: VERIFIED_MAX, ttl: VERIFIED_TTL_MS })
  #lastVerification: Promise<unknown> = Promise.resolve()
  /** Tokens by login channels. */
  readonly #waiting = new Map<string, number>()
  #allWaiting = 0

  constructor(
    baseUrl: string,
    now: () => number,
    keysIntervalMs = KEYS_INTERVAL_MS,
    fetch: Fetch = globalThis.fetch,
  ) {
    this.#platform = { baseUrl, timeouts: KEYS_TIMEOUTS, fetch }
    this.#now = now
    this.#keysIntervalMs = keysIntervalMs
    // Fetched when a token needs them, and again for a key id that they lack.
    this.#keys = createRemoteJWKSet(new URL(baseUrl + KEYS_PATH), {
      cooldownDuration: 0,
      cacheMaxAge: KEYS_MAX_AGE_MS,
      [customFetch]: () => this.#fetchKeys(),
    })
  }

  /**
   * Verifies the tokens of one request. Cached tokens do not wait, so a flood of new tokens does not delay them. Throws `unavailable`
   * if too many tokens of the login channels wait, and `platform_unavailable` if a token needs keys that LINE does not return now.
   */
  async verify(
    tokens: ReadonlySet<string>,
    loginChannelIds: string[],
  ): Promise<ReadonlyMap<string, TokenVerdict>> {
    const startedAtMs = performance.now()
    const audience = loginChannelIds.join(' ')
    const verdicts = new Map<string, TokenVerdict>()
    const unverified: string[] = []
    for await (const token of paced(tokens)) {
      const verdict =
        audience === '' ? NO_CHANNEL : (this.#obviousFault(token) ?? this.#cachedVerdict(token, audience))
      if (verdict === null) unverified.push(token)
      else verdicts.set(token, verdict)
      // Checked early, so that requests of a flood cost little: reading 500 tokens takes 3 ms.
      this.#requireRoom(audience, unverified.length)
    }
    this.#wait(audience, unverified.length)
    try {
      for await (const token of paced(unverified))
        verdicts.set(token, await this.#verify(token, loginChannelIds, startedAtMs))
    } finally {
      this.#wait(audience, -unverified.length)
    }
    for (const { isValid } of verdicts.values())
      idTokenVerified.publish({ outcome: isValid ? 'valid' : 'invalid' })
    return verdicts
  }

  /** A login channel may have as many as it leaves free: half of all if it is alone. So others always find room. */
  #requireRoom(audience: string, count: number): void {
    const isFull = (this.#waiting.get(audience) ?? 0) + count > WAITING_MAX - this.#allWaiting
    if (count > 0 && isFull) throw new AppError('unavailable', { retryAfterSeconds: 1 })
  }

  #wait(audience: string, change: number): void {
    const waiting = (this.#waiting.get(audience) ?? 0) + change
    this.#allWaiting += change
    if (waiting === 0) this.#waiting.delete(audience)
    else this.#waiting.set(audience, waiting)
  }

  /** Needs no key. Events that were queued offline often have an expired token, whose key LINE may have withdrawn. */
  #obviousFault(token: string): TokenVerdict | null {
    if (token.length > TOKEN_MAX_LENGTH) return invalid(`is longer than ${TOKEN_MAX_LENGTH} characters`)
    if (!TOKEN.test(token)) return MALFORMED
    try {
      const { exp = Number.POSITIVE_INFINITY } = decodeJwt(token)
      if ((exp + LEEWAY_SECONDS) * 1000 <= this.#now()) return EXPIRED
      return decodeProtectedHeader(token).alg === ALGORITHM ? null : invalid('is not signed with ES256')
    } catch {
      return MALFORMED
    }
  }

  #cachedVerdict(token: string, audience: string): TokenVerdict | null {
    const userId = this.#verified.get(cacheKey(token, audience))
    return userId === undefined ? null : { isValid: true, userId }
  }

  async #verify(token: string, loginChannelIds: string[], startedAtMs: number): Promise<TokenVerdict> {
    const key = await this.#keyOf(token, startedAtMs)
    if ('isValid' in key) return key
    // This process verifies one token at a time, so a flood of forged tokens uses only a part of one core. Each request waits with one
    // token at a time, so requests take turns.
    const verification = this.#lastVerification.then(() => this.#verifyNow(token, loginChannelIds, key))
    this.#lastVerification = verification.catch(() => undefined)
    return verification
  }

  /** Returns the key that the token names. A key id may be newer than the cached keys, unless those were requested after the request began. */
  async #keyOf(token: string, startedAtMs: number): Promise<CryptoKey | TokenVerdict> {
    if (performance.now() - this.#keysFetchedAtMs > KEYS_REFRESH_MS)
      this.#keys.reload().catch(() => undefined)
    try {
      return await this.#keys(decodeProtectedHeader(token))
    } catch (error) {
      if (error instanceof errors.JWKSMultipleMatchingKeys) return MALFORMED
      if (this.#keysFetchedAtMs >= startedAtMs) return UNKNOWN_KEY
      idTokenVerified.publish({ outcome: 'unavailable' })
      throw new AppError('platform_unavailable', { cause: error, retryAfterSeconds: RETRY_AFTER_SECONDS })
    }
  }

  /** Throws if LINE returned anything but keys, or was asked for them just now. */
  async #fetchKeys(): Promise<Response> {
    const requestedAtMs = performance.now()
    if (requestedAtMs - this.#keysRequestedAtMs < this.#keysIntervalMs)
      throw new Error('the keys were requested just now')
    this.#keysRequestedAtMs = requestedAtMs
    const result = await callPlatform(this.#platform, {
      method: 'GET',
      path: KEYS_PATH,
      secrets: [],
      isRepeatable: true,
    })
    const keys = createLocalJWKSet((result.ok ? result.value : null) as JSONWebKeySet).jwks()
    this.#keysFetchedAtMs = requestedAtMs
    return Response.json(keys)
  }

  async #verifyNow(token: string, loginChannelIds: string[], key: CryptoKey): Promise<TokenVerdict> {
    try {
      const { payload } = await jwtVerify(token, key, {
        algorithms: [ALGORITHM],
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

const NO_CHANNEL = invalid('cannot be verified: the account has no login channel', true)
const EXPIRED = invalid('has expired')
const MALFORMED = invalid('is malformed')
const UNKNOWN_KEY = invalid('has a key id that LINE does not publish')

/** Throws the error if it does not concern the token. */
function verdictOf(error: unknown): TokenVerdict {
  if (error instanceof errors.JWTExpired) return EXPIRED
  if (error instanceof errors.JWSSignatureVerificationFailed) return invalid('has a wrong signature')
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.claim === 'iss') return invalid('was not issued by LINE')
    if (error.claim === 'aud') return invalid("is for another login channel than the account's", true)
    return invalid(`has no valid claim ${error.claim}`)
  }
  if (error instanceof errors.JOSEError) return MALFORMED
  throw error
}
