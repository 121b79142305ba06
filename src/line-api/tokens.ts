/** Stateless channel access tokens for accounts that store none. They are issued for the channel id and secret, and cached. */
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { Secret } from '../config/secret.ts'
import { isObject } from '../http/body.ts'
import { callPlatform, type Platform, type PlatformResult, UNAVAILABLE } from './call.ts'

/** A token is valid for 15 minutes. One that is about to expire is not used for a new call. */
const EXPIRY_MARGIN_MS = 60_000
const TOKENS_MAX = 10_000

/** What an account stores: an access token, or what one is issued for. */
export interface Credentials {
  id: bigint
  channelId: string | null
  channelSecret: Secret | null
  channelAccessToken: Secret | null
}

interface Channel {
  id: bigint
  channelId: string
  channelSecret: Secret
}

interface Issued {
  channel: Channel
  token: Promise<PlatformResult<Secret>>
  expiresAtMs: number
}

export class StatelessTokens {
  readonly #platform: Platform
  readonly #issued = new LRUCache<bigint, Issued>({ max: TOKENS_MAX })

  constructor(platform: Platform) {
    this.#platform = platform
  }

  /** Concurrent callers share one request. A failure is not cached. */
  async get(channel: Channel, signal?: AbortSignal): Promise<PlatformResult<Secret>> {
    const cached = this.#issued.get(channel.id)
    if (cached !== undefined && isSameChannel(cached.channel, channel) && cached.expiresAtMs > Date.now())
      return cached.token
    const issued: Issued = {
      channel,
      token: Promise.resolve(UNAVAILABLE),
      expiresAtMs: Number.POSITIVE_INFINITY,
    }
    issued.token = this.issue(channel, signal).then((result) => {
      if (result.ok) issued.expiresAtMs = Date.now() + result.value.lifetimeMs - EXPIRY_MARGIN_MS
      else if (this.#issued.get(channel.id) === issued) this.#issued.delete(channel.id)
      return result.ok ? { ok: true, value: result.value.token } : result
    })
    this.#issued.set(channel.id, issued)
    return issued.token
  }

  forget(accountId: bigint): void {
    this.#issued.delete(accountId)
  }

  /** POST /oauth2/v3/token. The platform does not limit the number of these tokens, and none can be revoked. */
  async issue(
    { channelId, channelSecret }: Omit<Channel, 'id'>,
    signal?: AbortSignal,
  ): Promise<PlatformResult<{ token: Secret; lifetimeMs: number }>> {
    const form = new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: channelId,
      client_secret: channelSecret.reveal(),
    })
    const result = await callPlatform(this.#platform, {
      method: 'POST',
      path: '/oauth2/v3/token',
      form,
      secrets: [channelSecret],
      isRepeatable: true,
      signal,
    })
    if (!result.ok) {
      if (result.fault.type !== 'refused') return result
      return { ok: false, fault: { ...result.fault, type: 'refused_credentials' } }
    }
    if (!isObject(result.value)) return UNAVAILABLE
    const { access_token: token, expires_in: seconds } = result.value
    if (typeof token !== 'string' || !isSendable(token)) return UNAVAILABLE
    const lifetimeMs = typeof seconds === 'number' && seconds > 0 ? seconds * 1000 : 0
    return { ok: true, value: { token: new Secret(token), lifetimeMs } }
  }
}

export function isSendable(token: string): boolean {
  return /^[\x21-\x7e]+$/.test(token)
}

function isSameChannel(a: Channel, b: Channel): boolean {
  return a.channelId === b.channelId && a.channelSecret.equals(b.channelSecret)
}

// Keeps the calls for each account below the platform's rate limits, which apply per channel and endpoint.

/** A call that would wait longer is refused, because its caller has a time limit of its own. */
const WAIT_MAX_MS = 1_500
/** Unused calls accumulate for this long, so an idle account may send a burst. */
const BURST_MS = 1_000

interface Clock {
  now: () => number
  sleep: (ms: number) => Promise<unknown>
}

export class RateLimiter {
  readonly #intervalMs: number
  readonly #clock: Clock
  readonly #nextAtMs = new Map<bigint, number>()

  constructor(perSecond: number, clock: Clock = { now: () => performance.now(), sleep }) {
    this.#intervalMs = 1000 / perSecond
    this.#clock = clock
  }

  /** Resolves with true when the account may make its next call, or immediately with false if the wait would be too long. */
  async acquire(accountId: bigint): Promise<boolean> {
    const now = this.#clock.now()
    const at = Math.max(now - BURST_MS, this.#nextAtMs.get(accountId) ?? Number.NEGATIVE_INFINITY)
    if (at - now > WAIT_MAX_MS) return false
    this.#nextAtMs.set(accountId, at + this.#intervalMs)
    if (at > now) await this.#clock.sleep(at - now)
    return true
  }
}
