/** The calls of LINE's Manage Audience API, of which an account of Japan, Thailand or Taiwan has at most 1,000 audiences. */
import { isObject } from '../http/body.ts'
import type { Call, Platform, PlatformResult } from './call.ts'
import { read } from './line-responses.ts'
import { type Credentials, RateLimiter } from './tokens.ts'

/** User ids of one upload: 1,500,000 × 34 bytes = 51 MB. */
export const AUDIENCE_MAX_IDS = 1_500_000
/** Limit per account for all of these calls. LINE allows 60 per minute for each of them. */
const CALLS_PER_SECOND = 1
/** LINE recommends at least 30 s. */
const TIMEOUTS = { attemptMs: 30_000, callMs: 30_000 }
/** 51 MB ÷ 300 s = 170 kB/s. */
const UPLOAD_TIMEOUTS = { attemptMs: 300_000, callMs: 300_000 }
/** The largest page of the list. */
const PAGE_SIZE = 40
/** 1,000 audiences. */
const PAGES_MAX = 25

const PATH = '/v2/bot/audienceGroup'

export type CallOfAccount = (
  account: Credentials,
  limiter: RateLimiter,
  call: Omit<Call, 'token' | 'secrets'>,
  platform: Platform,
) => Promise<PlatformResult<unknown>>

export class AudienceGroups {
  readonly #platform: Platform
  readonly #dataPlatform: Platform
  readonly #limiter: RateLimiter
  readonly #callOf: CallOfAccount

  constructor({ baseUrl, fetch }: Platform, callOf: CallOfAccount, callsPerSecond = CALLS_PER_SECOND) {
    this.#limiter = new RateLimiter(callsPerSecond)
    this.#platform = { baseUrl, timeouts: TIMEOUTS, fetch }
    // LINE takes files at another host.
    const dataUrl = baseUrl.replace('//api.line.me', '//api-data.line.me')
    this.#dataPlatform = { baseUrl: dataUrl, timeouts: UPLOAD_TIMEOUTS, fetch }
    this.#callOf = callOf
  }

  /**
   * Makes an audience, which LINE then processes for up to hours. LINE has no retry key for it, so an upload without a response may
   * have made one: see `find`.
   * @param ids one user id per line
   */
  async upload(
    account: Credentials,
    name: string,
    ids: Blob,
    signal?: AbortSignal,
  ): Promise<PlatformResult<bigint>> {
    const form = new FormData()
    form.set('description', name)
    form.set('file', ids, 'ids.txt')
    const path = `${PATH}/upload/byFile`
    const call = { method: 'POST', path, form, isRepeatable: false, signal } as const
    return read(await this.#callOf(account, this.#limiter, call, this.#dataPlatform), idOf)
  }

  /** IN_PROGRESS, READY, FAILED, EXPIRED, INACTIVE or ACTIVATING. Refused with 400 if it does not exist. */
  async status(account: Credentials, id: bigint, signal?: AbortSignal): Promise<PlatformResult<string>> {
    const result = await this.#call(account, { method: 'GET', path: `${PATH}/${id}`, signal })
    return read(result, ({ audienceGroup }) => textOf(audienceGroup, 'status'))
  }

  /** Ids of the audiences with a name, without case, as LINE compares them. */
  async find(account: Credentials, name: string, signal?: AbortSignal): Promise<PlatformResult<bigint[]>> {
    const found: bigint[] = []
    for (let page = 1; ; page += 1) {
      // LINE returns those that contain the name.
      const query = new URLSearchParams({ page: String(page), size: String(PAGE_SIZE), description: name })
      const result = await this.#call(account, { method: 'GET', path: `${PATH}/list?${query}`, signal })
      const listed = read(result, ({ audienceGroups, hasNextPage }) =>
        Array.isArray(audienceGroups) ? { groups: audienceGroups, isLast: hasNextPage !== true } : null,
      )
      if (!listed.ok) return listed
      for (const group of listed.value.groups) {
        const [id, description] = [idOf(group), textOf(group, 'description')]
        if (id !== null && description?.toLowerCase() === name.toLowerCase()) found.push(id)
      }
      if (listed.value.isLast || page >= PAGES_MAX) return { ok: true, value: found }
    }
  }

  /** Refused with 400 if it does not exist. */
  remove(account: Credentials, id: bigint, signal?: AbortSignal): Promise<PlatformResult<unknown>> {
    return this.#call(account, { method: 'DELETE', path: `${PATH}/${id}`, signal })
  }

  #call(account: Credentials, call: Pick<Call, 'method' | 'path' | 'signal'>) {
    return this.#callOf(account, this.#limiter, { ...call, isRepeatable: true }, this.#platform)
  }
}

function idOf(group: unknown): bigint | null {
  const id = isObject(group) ? group.audienceGroupId : null
  return typeof id === 'number' && Number.isSafeInteger(id) ? BigInt(id) : null
}

function textOf(group: unknown, name: string): string | null {
  const value = isObject(group) ? group[name] : null
  return typeof value === 'string' ? value : null
}
