/** Stateless tokens of accounts that store none: issued from channel id and secret, kept until shortly before they expire. */
import { BoundedMap } from '../bounded-map.ts'
import { isObject } from '../http/body.ts'
import { Secret } from '../secret.ts'
import { callPlatform, type PlatformResult, UNAVAILABLE } from './call.ts'

/** A token is good for 15 minutes; one that is about to end is not begun with. */
const EXPIRY_MARGIN_MS = 60_000
/** Tokens kept at once: more accounts than this take turns. */
const TOKENS_MAX = 10_000

interface Issued {
  token: Promise<PlatformResult<Secret>>
  expiresAtMs: number
}

export class StatelessTokens {
  readonly #baseUrl: string
  readonly #issued = new BoundedMap<string, Issued>(TOKENS_MAX)

  constructor(baseUrl: string) {
    this.#baseUrl = baseUrl
  }

  /** The token of a channel; several who ask at once share one call. What failed is not kept. */
  async get(channelId: string, channelSecret: Secret, signal?: AbortSignal): Promise<PlatformResult<Secret>> {
    const key = keyOf(channelId, channelSecret)
    const known = this.#issued.get(key)
    if (known !== undefined && known.expiresAtMs > Date.now()) return known.token
    const issued: Issued = { token: Promise.resolve(UNAVAILABLE), expiresAtMs: Number.POSITIVE_INFINITY }
    issued.token = this.#issue(channelId, channelSecret, signal).then((result) => {
      if (result.ok) issued.expiresAtMs = Date.now() + result.value.lifetimeMs - EXPIRY_MARGIN_MS
      else if (this.#issued.get(key) === issued) this.#issued.delete(key)
      return result.ok ? { ok: true, value: result.value.token } : result
    })
    this.#issued.delete(key)
    this.#issued.set(key, issued)
    return issued.token
  }

  forget(channelId: string, channelSecret: Secret): void {
    this.#issued.delete(keyOf(channelId, channelSecret))
  }

  /** POST /oauth2/v3/token: any number may be issued, none can be revoked. */
  async #issue(
    channelId: string,
    channelSecret: Secret,
    signal?: AbortSignal,
  ): Promise<PlatformResult<{ token: Secret; lifetimeMs: number }>> {
    const form = new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: channelId,
      client_secret: channelSecret.reveal(),
    })
    const answer = await callPlatform(this.#baseUrl, {
      method: 'POST',
      path: '/oauth2/v3/token',
      form,
      secrets: [channelSecret],
      isRepeatable: true,
      signal,
    })
    if (!answer.ok) {
      if (answer.fault.type !== 'refused') return answer
      return { ok: false, fault: { type: 'refused_credentials', status: answer.fault.status } }
    }
    if (!isObject(answer.value)) return UNAVAILABLE
    const { access_token: token, expires_in: seconds } = answer.value
    if (typeof token !== 'string' || !isSendable(token)) return UNAVAILABLE
    const lifetimeMs = typeof seconds === 'number' && seconds > 0 ? seconds * 1000 : 0
    return { ok: true, value: { token: new Secret(token), lifetimeMs } }
  }
}

/** Whether a token can stand in a header. */
export function isSendable(token: string): boolean {
  return /^[\x21-\x7e]+$/.test(token)
}

function keyOf(channelId: string, channelSecret: Secret): string {
  return `${channelId} ${channelSecret.reveal()}`
}
