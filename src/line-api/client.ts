/** The calls of the LINE Messaging API that this service uses (developers.line.biz, "Messaging API reference"). */
import type { Secret } from '../config/secret.ts'
import type { Fetch } from '../http/egress-proxy.ts'
import { AudienceGroups, type CallOfAccount } from './audience-groups.ts'
import {
  CALL_TIMEOUTS,
  type Call,
  type CallTimeouts,
  callPlatform,
  type Platform,
  type PlatformResult,
  refused,
  UNAVAILABLE,
} from './call.ts'
import {
  type MessageQuota,
  type Profile,
  type ResponseFields,
  read,
  readBotInfo,
  readEndpoint,
  readFollowerStatistics,
  readFollowers,
  readProfile,
  readQuotaLimit,
  readQuotaUsed,
  readTest,
  readTokenInfo,
  type TokenInfo,
} from './line-responses.ts'
import { type Credentials, isSendable, RateLimiter, StatelessTokens } from './tokens.ts'

/** Limit per account. LINE allows 2,000 per second for all programs of a channel. Ten instances use half of it: 10 × 100 = 1,000. */
const READS_PER_SECOND = 100
/** Limit per account. LINE allows 1,000 per minute. */
const WEBHOOK_CALLS_PER_SECOND = 5

/** The largest page that LINE returns. */
export const FOLLOWERS_PAGE_SIZE = 1_000

const WEBHOOK_PATH = '/v2/bot/channel/webhook/endpoint'

interface LineApiOptions {
  timeouts?: CallTimeouts
  audienceCallsPerSecond?: number
  /** by default without a proxy */
  fetch?: Fetch | undefined
}

/** No method rejects. A failure is a PlatformFault. */
export class LineApi {
  readonly #platform: Platform
  readonly #tokens: StatelessTokens
  readonly #reads = new RateLimiter(READS_PER_SECOND)
  readonly #webhookCalls = new RateLimiter(WEBHOOK_CALLS_PER_SECOND)
  readonly audienceGroups: AudienceGroups

  constructor(
    baseUrl: string,
    { timeouts = CALL_TIMEOUTS, audienceCallsPerSecond, fetch = globalThis.fetch }: LineApiOptions = {},
  ) {
    this.#platform = { baseUrl, timeouts, fetch }
    this.#tokens = new StatelessTokens(this.#platform)
    const callOf: CallOfAccount = (...call) => this.#call(...call)
    this.audienceGroups = new AudienceGroups(this.#platform, callOf, audienceCallsPerSecond)
  }

  /** The account that the stored credentials belong to. */
  botInfo(account: Credentials, signal?: AbortSignal) {
    return this.#get(account, this.#reads, '/v2/bot/info', readBotInfo, signal)
  }

  /**
   * Refused with 404 if the person blocked the account, is not a friend, gave no consent, was deleted, or is not in the group.
   * @param groupId a group or room of the person; null: the profile of a friend
   */
  async profile(
    account: Credentials,
    userId: string,
    groupId: string | null,
    signal?: AbortSignal,
  ): Promise<PlatformResult<Profile>> {
    // Other characters could change the path.
    if (![userId, groupId ?? userId].every((id) => /^[A-Za-z0-9-]+$/.test(id))) return refused(404)
    // The ids of rooms begin with R.
    const chat = `${groupId?.startsWith('R') ? 'room' : 'group'}/${groupId}`
    const path = groupId === null ? `/v2/bot/profile/${userId}` : `/v2/bot/${chat}/member/${userId}`
    return this.#get(account, this.#reads, path, readProfile, signal)
  }

  /** Refused with 403 for an account that is neither verified nor premium. @param start `next` of the previous page */
  followers(account: Credentials, limit: number, start?: string, signal?: AbortSignal) {
    const query = new URLSearchParams({ limit: String(limit), ...(start === undefined ? {} : { start }) })
    return this.#get(account, this.#reads, `/v2/bot/followers/ids?${query}`, readFollowers, signal)
  }

  /** Refused with 404 if no webhook URL is set. */
  webhookEndpoint(account: Credentials, signal?: AbortSignal) {
    return this.#get(account, this.#webhookCalls, WEBHOOK_PATH, readEndpoint, signal)
  }

  /** https, at most 500 characters. LINE applies it within a minute. Refused with 400 for a URL that LINE does not accept. */
  setWebhookEndpoint(account: Credentials, endpoint: string, signal?: AbortSignal) {
    const json = { endpoint }
    const call = { method: 'PUT', path: WEBHOOK_PATH, json, isRepeatable: true, signal } as const
    return this.#call(account, this.#webhookCalls, call)
  }

  /**
   * Without a URL in the request, LINE may still test the previous one for a minute after a change. It allows 60 tests per hour, so
   * this is never retried.
   */
  async testWebhook(account: Credentials, endpoint: string, signal?: AbortSignal) {
    const path = '/v2/bot/channel/webhook/test'
    const call = { method: 'POST', path, json: { endpoint }, isRepeatable: false, signal } as const
    return read(await this.#call(account, this.#webhookCalls, call), readTest)
  }

  /**
   * LINE's totals at the end of a day, available about a day later. Null: not yet available. LINE allows 60 calls per hour.
   * @param day `20261122`; LINE's days begin at 15:00 UTC
   */
  async followerStatistics(account: Credentials, day: string, signal?: AbortSignal) {
    const path = `/v2/bot/insight/followers?date=${day}`
    const result = await this.#get(account, this.#reads, path, readFollowerStatistics, signal)
    return result.ok ? { ok: true as const, value: result.value.statistics } : result
  }

  async messageQuota(account: Credentials, signal?: AbortSignal): Promise<PlatformResult<MessageQuota>> {
    const path = '/v2/bot/message/quota'
    const limit = await this.#get(account, this.#reads, path, readQuotaLimit, signal)
    if (!limit.ok) return limit
    const used = await this.#get(account, this.#reads, `${path}/consumption`, readQuotaUsed, signal)
    return used.ok ? { ok: true, value: { ...limit.value, ...used.value } } : used
  }

  /** Information about the stored access token. Null: none is stored. Refused with 400 for an invalid token. */
  async tokenInfo(account: Credentials, signal?: AbortSignal): Promise<PlatformResult<TokenInfo | null>> {
    const token = account.channelAccessToken
    if (token === null) return { ok: true, value: null }
    // Tokens of version 2.1 are JWTs and have a separate route.
    const form = new URLSearchParams({ access_token: token.reveal() })
    const route = token.reveal().startsWith('eyJ')
      ? ({ method: 'GET', path: `/oauth2/v2.1/verify?${form}` } as const)
      : ({ method: 'POST', path: '/v2/oauth/verify', form } as const)
    const call = { ...route, secrets: [token], isRepeatable: true, signal }
    return read(await callPlatform(this.#platform, call), readTokenInfo)
  }

  /** Issues a token that nobody uses. Refused if the channel id and secret do not belong together. */
  proveChannel(channelId: string, channelSecret: Secret): Promise<PlatformResult<unknown>> {
    return this.#tokens.issue({ channelId, channelSecret })
  }

  /** Makes the next call issue a new token, and so check the current channel id and secret. */
  forgetToken({ id }: Credentials): void {
    this.#tokens.forget(id)
  }

  async #get<T>(
    account: Credentials,
    limiter: RateLimiter,
    path: string,
    reader: (fields: ResponseFields) => T | null,
    signal?: AbortSignal,
  ): Promise<PlatformResult<T>> {
    const call = { method: 'GET', path, isRepeatable: true, signal } as const
    return read(await this.#call(account, limiter, call), reader)
  }

  async #call(
    account: Credentials,
    limiter: RateLimiter,
    call: Omit<Call, 'token' | 'secrets'>,
    platform = this.#platform,
  ): Promise<PlatformResult<unknown>> {
    const token = await this.#token(account, call.signal)
    if (!token.ok) return token
    if (!(await limiter.acquire(account.id))) return UNAVAILABLE
    const secrets = [token.value, ...(account.channelSecret ? [account.channelSecret] : [])]
    const result = await callPlatform(platform, { ...call, token: token.value, secrets })
    if (!result.ok && result.fault.type === 'refused' && result.fault.status === 401)
      this.forgetToken(account)
    return result
  }

  async #token(account: Credentials, signal?: AbortSignal): Promise<PlatformResult<Secret>> {
    const { id, channelId, channelSecret, channelAccessToken } = account
    if (channelAccessToken) {
      return isSendable(channelAccessToken.reveal())
        ? { ok: true, value: channelAccessToken }
        : { ok: false, fault: { type: 'malformed_token' } }
    }
    if (!channelId || !channelSecret) return { ok: false, fault: { type: 'no_credentials' } }
    return this.#tokens.get({ id, channelId, channelSecret }, signal)
  }
}
