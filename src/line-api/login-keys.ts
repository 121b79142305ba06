/**
 * The public keys of LINE's ID tokens. They are fetched when a token needs them, and cached. LINE rotates them, so a token with an
 * unknown key id waits for the next fetch.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocalJWKSet, type JSONWebKeySet } from 'jose'
import { callPlatform, type Platform } from './call.ts'

/** `jwks_uri` of https://access.line.me/.well-known/openid-configuration. */
const PATH = '/oauth2/v2.1/certs'
/** A request waits for the interval and the call: 3 s + 3 s, less than the time limit of a shutdown (6.5 s). */
const TIMEOUTS = { attemptMs: 2_000, callMs: 3_000 }
export const RETRY_AFTER_SECONDS = 5
/** Older keys are refreshed in the background, so an outage of LINE does not affect tokens with cached keys. */
const REFRESH_AFTER_MS = 10 * 60_000
/** Older keys are not used, because LINE may have withdrawn them. */
const USABLE_MS = 24 * 3_600_000

interface FetchPauses {
  /**
   * Between the starts of two fetches: at most 20 fetches per minute. Anybody can send tokens with key ids that do not exist. All of
   * them wait for the same fetch.
   */
  intervalMs: number
  /** Pause after a failed fetch, during which no token waits for another one. */
  failureMs: number
}

export const FETCH_PAUSES: FetchPauses = { intervalMs: 3_000, failureMs: RETRY_AFTER_SECONDS * 1000 }

export type LoginKeySet = ReturnType<typeof createLocalJWKSet>

export class LoginKeys {
  readonly #platform: Platform
  readonly #pauses: FetchPauses
  #keys: LoginKeySet | null = null
  #fetchedAtMs = Number.NEGATIVE_INFINITY
  #startedAtMs = Number.NEGATIVE_INFINITY
  #failedAtMs = Number.NEGATIVE_INFINITY
  #fetching: Promise<LoginKeySet | null> | null = null

  constructor(baseUrl: string, pauses: FetchPauses) {
    this.#pauses = pauses
    this.#platform = { baseUrl, timeouts: TIMEOUTS }
  }

  /** Returns the cached keys, fetched if there are none. Null: LINE does not respond. */
  async get(): Promise<LoginKeySet | null> {
    const ageMs = performance.now() - this.#fetchedAtMs
    if (this.#keys === null || ageMs > USABLE_MS) return this.getNewer()
    if (ageMs > REFRESH_AFTER_MS) void this.getNewer()
    return this.#keys
  }

  /** Returns the keys of the next fetch. Concurrent callers share it. Null: LINE does not respond. */
  async getNewer(): Promise<LoginKeySet | null> {
    if (performance.now() - this.#failedAtMs < this.#pauses.failureMs) return null
    this.#fetching ??= this.#fetchWhenDue().finally(() => {
      this.#fetching = null
    })
    return this.#fetching
  }

  async #fetchWhenDue(): Promise<LoginKeySet | null> {
    const pauseMs = Math.max(0, this.#startedAtMs + this.#pauses.intervalMs - performance.now())
    await sleep(pauseMs, undefined, { ref: false })
    this.#startedAtMs = performance.now()
    return this.#fetch()
  }

  async #fetch(): Promise<LoginKeySet | null> {
    const result = await callPlatform(this.#platform, {
      method: 'GET',
      path: PATH,
      secrets: [],
      isRepeatable: true,
    })
    const keys = result.ok ? keySetOf(result.value) : null
    if (keys === null) {
      this.#failedAtMs = performance.now()
      return null
    }
    this.#keys = keys
    this.#fetchedAtMs = performance.now()
    return keys
  }
}

/** Returns null if the value is not a set of keys, or an empty one, which would reject every token. */
function keySetOf(value: unknown): LoginKeySet | null {
  try {
    const keys = createLocalJWKSet(value as JSONWebKeySet)
    return keys.jwks().keys.length > 0 ? keys : null
  } catch {
    return null
  }
}
