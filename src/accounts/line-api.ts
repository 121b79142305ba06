/** The messaging platform's API, as far as it is needed: with limits on time and size, and errors in a closed union. */
import { isObject } from '../http/body.ts'
import { Secret } from '../secret.ts'
import type { Account } from './account.ts'

/** A whole call. Verification makes few calls and must answer within 10 s. */
const CALL_TIMEOUT_MS = 3_000
/** Bytes. The platform's answers have a few hundred. */
const ANSWER_MAX_BYTES = 64 * 1024
/** What callers are told when the platform names no time of its own. */
const RETRY_AFTER_SECONDS = 5

export type PlatformFault =
  /** the platform understood and said no: a bad token, another account */
  | { type: 'refused'; status: number }
  /** the stored token cannot even be sent: a line break was copied with it, for example */
  | { type: 'malformed_token' }
  /** away, slow, limiting, or answering something that is none of its answers */
  | { type: 'unavailable'; retryAfterSeconds: number }

export type PlatformResult<T> = { ok: true; value: T } | { ok: false; fault: PlatformFault }

export interface BotInfo {
  userId: string
  basicId: string
  premiumId: string | null
  displayName: string
  pictureUrl: string | null
  chatMode: string
  markAsReadMode: string
}

export class LineApi {
  readonly #baseUrl: string

  constructor(baseUrl: string) {
    this.#baseUrl = baseUrl
  }

  /** The token to call with: the stored one, else a stateless one. Null where the account has no credentials. */
  async accessToken(account: Account): Promise<PlatformResult<Secret> | null> {
    if (account.channelAccessToken) {
      const sendable = /^[\x21-\x7e]+$/.test(account.channelAccessToken.reveal())
      if (!sendable) return { ok: false, fault: { type: 'malformed_token' } }
      return { ok: true, value: account.channelAccessToken }
    }
    if (!account.channelId || !account.channelSecret) return null
    return this.issueStatelessToken(account.channelId, account.channelSecret)
  }

  /** POST /oauth2/v3/token: valid for 15 minutes, any number may be issued, none needs to be stored. */
  async issueStatelessToken(channelId: string, channelSecret: Secret): Promise<PlatformResult<Secret>> {
    const body = new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: channelId,
      client_secret: channelSecret.reveal(),
    })
    const answer = await this.#call('/oauth2/v3/token', { method: 'POST', body })
    if (!answer.ok) return answer
    const token = isObject(answer.value) ? answer.value.access_token : null
    return typeof token === 'string' && token !== '' ? { ok: true, value: new Secret(token) } : UNINTELLIGIBLE
  }

  /** GET /v2/bot/info: the account that a token belongs to. */
  async botInfo(token: Secret): Promise<PlatformResult<BotInfo>> {
    const headers = { authorization: `Bearer ${token.reveal()}` }
    const answer = await this.#call('/v2/bot/info', { headers })
    if (!answer.ok) return answer
    const info = readBotInfo(answer.value)
    return info === null ? UNINTELLIGIBLE : { ok: true, value: info }
  }

  async #call(path: string, init: RequestInit): Promise<PlatformResult<unknown>> {
    try {
      const signal = AbortSignal.timeout(CALL_TIMEOUT_MS)
      const response = await fetch(this.#baseUrl + path, { ...init, signal, redirect: 'error' })
      const text = await readLimited(response)
      if (response.ok) return { ok: true, value: JSON.parse(text) as unknown }
      if (response.status >= 500 || response.status === 429 || response.status === 408) {
        return { ok: false, fault: { type: 'unavailable', retryAfterSeconds: retryAfter(response) } }
      }
      return { ok: false, fault: { type: 'refused', status: response.status } }
    } catch {
      // No network, no answer in time, too long an answer, no JSON, a token that is no header: the error's words
      // may quote what was sent, so they go no further.
      return UNINTELLIGIBLE
    }
  }
}

const UNINTELLIGIBLE = {
  ok: false,
  fault: { type: 'unavailable', retryAfterSeconds: RETRY_AFTER_SECONDS },
} as const

/** Reads the body and gives up, closing the connection, as soon as it is longer than any answer of the platform. */
async function readLimited(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength
    if (size > ANSWER_MAX_BYTES) throw new Error('the answer is too long')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function retryAfter(response: Response): number {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN)
  return Number.isInteger(seconds) && seconds > 0 && seconds <= 3600 ? seconds : RETRY_AFTER_SECONDS
}

function readBotInfo(value: unknown): BotInfo | null {
  if (!isObject(value)) return null
  const text = (name: string) => {
    const field = value[name]
    // jsonb, where the outcome is stored, holds neither the character 0 nor half a surrogate pair.
    return typeof field === 'string' ? field.replaceAll('\0', '').toWellFormed() : null
  }
  const userId = text('userId')
  const basicId = text('basicId')
  const displayName = text('displayName')
  if (userId === null || basicId === null || displayName === null) return null
  return {
    userId,
    basicId,
    premiumId: text('premiumId'),
    displayName,
    pictureUrl: text('pictureUrl'),
    chatMode: text('chatMode') ?? 'unknown',
    markAsReadMode: text('markAsReadMode') ?? 'unknown',
  }
}
