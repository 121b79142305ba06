/**
 * The public keys that LINE signs ID tokens with. They are fetched when a token needs them and cached. LINE rotates them, so a
 * token that names an unknown key waits for the next fetch.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocalJWKSet, type JSONWebKeySet } from 'jose'
import { callPlatform, type Platform } from './call.ts'

/** `jwks_uri` of https://access.line.me/.well-known/openid-configuration. */
const PATH = '/oauth2/v2.1/certs'
/** A request waits for the interval and for the call: together they stay below the time limit of a shutdown, 6.5 s. */
const TIMEOUTS = { attemptMs: 2_000, callMs: 3_000 }
/** After a failed fetch. */
export const RETRY_AFTER_SECONDS = 5
/** Older keys are fetched again in the background, so an outage of LINE does not affect tokens of known keys. */
const REFRESH_AFTER_MS = 10 * 60_000
/** Older keys are not used, because LINE may have withdrawn them. */
const USABLE_MS = 24 * 3_600_000

export interface FetchPauses {
  /**
   * Between the starts of two fetches. Anybody can name keys that do not exist, and all tokens that do so wait for the same fetch:
   * at most 20 fetches per minute, whatever the load.
   */
  intervalMs: number
  /** After a failed fetch. Meanwhile no token waits for another one. */
  failureMs: number
}

export const FETCH_PAUSES: FetchPauses = { intervalMs: 3_000, failureMs: RETRY_AFTER_SECONDS * 1000 }

/** Finds the key that a token names. */
export type LoginKeySet = ReturnType<typeof createLocalJWKSet>

export class LoginKeys {
  readonly #platform: Platform
  readonly #pauses: FetchPauses
  #keys: LoginKeySet | null = null
  #fetchedAtMs = Number.NEGATIVE_INFINITY
  #startedAtMs = Number.NEGATIVE_INFINITY
  #failedAtMs = Number.NEGATIVE_INFINITY
  /** The fetch in flight, and the one that begins after it. */
  #current: Promise<LoginKeySet | null> | null = null
  #next: Promise<LoginKeySet | null> | null = null

  constructor(baseUrl: string, pauses: FetchPauses) {
    this.#pauses = pauses
    this.#platform = { baseUrl, timeouts: TIMEOUTS }
  }

  /** The cached keys, fetched if there are none. Null: LINE does not answer. */
  async get(): Promise<LoginKeySet | null> {
    const ageMs = performance.now() - this.#fetchedAtMs
    if (this.#keys === null || ageMs > USABLE_MS) return this.#current ?? this.getNewer()
    if (ageMs > REFRESH_AFTER_MS && this.#current === null) void this.getNewer()
    return this.#keys
  }

  /** Keys of a fetch that begins after this call. Concurrent callers share it. Null: LINE does not answer. */
  async getNewer(): Promise<LoginKeySet | null> {
    if (performance.now() - this.#failedAtMs < this.#pauses.failureMs) return null
    this.#next ??= this.#fetchWhenDue()
    return this.#next
  }

  async #fetchWhenDue(): Promise<LoginKeySet | null> {
    await this.#current
    const pauseMs = Math.max(0, this.#startedAtMs + this.#pauses.intervalMs - performance.now())
    // A process that ends does not wait for it.
    await sleep(pauseMs, undefined, { ref: false })
    this.#next = null
    this.#startedAtMs = performance.now()
    this.#current = this.#fetch()
    try {
      return await this.#current
    } finally {
      this.#current = null
    }
  }

  async #fetch(): Promise<LoginKeySet | null> {
    const answer = await callPlatform(this.#platform, {
      method: 'GET',
      path: PATH,
      secrets: [],
      isRepeatable: true,
    })
    const keys = answer.ok ? keySetOf(answer.value) : null
    if (keys === null) {
      this.#failedAtMs = performance.now()
      return null
    }
    this.#keys = keys
    this.#fetchedAtMs = performance.now()
    return keys
  }
}

/** Null: the answer is not a set of keys. A set without any key counts as a failure, because it would reject every token. */
function keySetOf(value: unknown): LoginKeySet | null {
  try {
    const keys = createLocalJWKSet(value as JSONWebKeySet)
    return keys.jwks().keys.length > 0 ? keys : null
  } catch {
    return null
  }
}
