/** A typed client of oa-audience, generated from its OpenAPI document by `npm run generate`. Copy it. */

export type Member = {
  id: string
  userId: string
  displayName: string | null
  pictureUrl: string | null
  language: string | null
  relationship: 'following' | 'blocked' | 'unknown'
  followedAt: string | null
  blockedAt: string | null
  firstSeenAt: string | null
  lastSeenAt: string | null
  eventCount: number
  conversation: { id: string; status: string | null; updatedAt: string } | null
  externalId: string | null
  tags: string[]
  attributes: Record<string, unknown>
  version: number
  createdAt: string
  updatedAt: string
}

export type ErasedMember = { id: string; deletedAt: string }

export type Page = { data: Array<Member | ErasedMember>; nextCursor: string | null }

export type MemberUpdate = {
  externalId?: string | null
  tags?: string[] | null
  attributes?: Record<string, string | number | boolean | null> | null
}

export type Claims = { testWebhook?: boolean; basicId?: string; botUserId?: string }

export type Verification = {
  verified: boolean
  account: {
    userId: string
    basicId: string
    premiumId: string | null
    displayName: string
    pictureUrl: string | null
    chatMode: string
    markAsReadMode: string
  } | null
  accountType: 'verified_or_premium' | 'unverified' | 'unknown'
  webhook: {
    endpoint: string | null
    active: boolean
    matches: boolean
    test?: { success: boolean; statusCode: number | null; reason: string; detail: string }
  } | null
  checks: Array<{
    name: 'access_token' | 'identity' | 'webhook_endpoint' | 'webhook_active' | 'webhook_test'
    ok: boolean
    message: string
  }>
  checkedAt: string
}

export type Receipt = { accepted: number; duplicates: number }

export type TrackingReceipt = {
  success: boolean
  accepted: number
  duplicates: number
  rejected: { index: number; message: string }[]
}

export type ErrorEnvelope = {
  statusCode: number
  error: string
  message: string
  details?: { path: string; message: string }[]
  requestId: string
}

export interface Credentials {
  clientId: string
  clientSecret: string
  apiKey: string
}

/** An answer above 299, with what the service said. */
export class ApiError extends Error {
  readonly envelope: ErrorEnvelope

  constructor(envelope: ErrorEnvelope) {
    super(envelope.message)
    this.envelope = envelope
  }
}

export class AudienceClient {
  readonly #url: string
  readonly #headers: Record<string, string>

  constructor(url: string, { clientId, clientSecret, apiKey }: Credentials) {
    this.#url = url
    this.#headers = { 'x-client-id': clientId, 'x-client-secret': clientSecret, 'x-api-key': apiKey }
  }

  /** A page of members, or with Accept a stream of all that match */
  async listAudience(
    query: {
      userId?: string
      externalId?: string
      relationship?: 'following' | 'blocked' | 'unknown'
      tag?: string | string[]
      q?: string
      updatedSince?: string
      limit?: number
      cursor?: string
    } = {},
  ): Promise<Page | null> {
    return (await this.#call('GET', `/api/audience`, query, undefined)) as Page | null
  }

  /** Sets externalId, tags, attributes */
  async updateMember(id: string, body: MemberUpdate, ifMatch?: string): Promise<Member> {
    return (await this.#call('PUT', `/api/audience/${encodeURIComponent(id)}`, {}, body, {
      ...(ifMatch === undefined ? {} : { 'if-match': ifMatch }),
    })) as Member
  }

  /** Erases the person */
  async eraseMember(id: string, ifMatch?: string): Promise<void> {
    await this.#call('DELETE', `/api/audience/${encodeURIComponent(id)}`, {}, undefined, {
      ...(ifMatch === undefined ? {} : { 'if-match': ifMatch }),
    })
  }

  /** Asks the platform whether the account is set up */
  async verifyAccount(body?: Claims): Promise<Verification> {
    return (await this.#call('POST', `/api/line-oa/verify`, {}, body)) as Verification
  }

  async #call(
    method: string,
    path: string,
    query: object = {},
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<unknown> {
    const parameters = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) {
      for (const each of [value].flat()) if (each !== undefined) parameters.append(name, String(each))
    }
    const response = await fetch(`${this.#url}${path}?${parameters}`, {
      method,
      headers: {
        ...this.#headers,
        ...headers,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    const isJson = response.headers.get('content-type')?.includes('json') === true
    if (text !== '' && !isJson) throw new Error(`${response.status}, and not by the service: a proxy's?`)
    const answer: unknown = text === '' ? undefined : JSON.parse(text)
    if (!response.ok) throw new ApiError(answer as ErrorEnvelope)
    return answer
  }
}
