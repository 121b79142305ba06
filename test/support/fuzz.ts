/** Random requests to every route. fast-check prints the seed and the smallest input of a failure. */
import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import type { Tenant } from './database.ts'
import { setUpService } from './service.ts'

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 30 }),
  fc.constantFrom('', '\u0000', '\ud800', '__proto__', 'constructor', "' or 1=1 --", '%00', '../..'),
  fc.constantFrom('😀'.repeat(50), '9'.repeat(40), '-1', '1e999'),
)
const nameOfJavaScript = fc.constantFrom('__proto__', 'constructor', 'toString', 'length')
const json = fc.oneof(
  { weight: 3, arbitrary: fc.jsonValue({ maxDepth: 4 }) },
  { weight: 1, arbitrary: fc.dictionary(nameOfJavaScript, fc.jsonValue()) },
)
/** A header value that an HTTP client can send. */
const headerValue = fc.string({ unit: 'grapheme-ascii', maxLength: 60 })

const queryParameter = fc.tuple(
  fc.constantFrom(
    ...['limit', 'cursor', 'userId', 'externalId', 'relationship', 'tag', 'q', 'updatedSince', '__proto__'],
  ),
  fc.oneof(
    text,
    fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('base64url')),
    fc.constantFrom('1', '200', 'vip'),
  ),
)

/** An object with some of these fields. Those that are only named hold any JSON. */
const objectWith = (names: string, known: Record<string, fc.Arbitrary<unknown>> = {}) => {
  const any = Object.fromEntries(names.split(' ').map((name) => [name, json]))
  return fc.record({ ...any, ...known }, { requiredKeys: [] })
}
const textOrJson = fc.oneof(text, json)

const memberUpdate = fc.oneof(
  json.map((value) => JSON.stringify(value)),
  objectWith('externalId tags attributes').map((value) => JSON.stringify(value)),
  text,
)

const kind = fc.constantFrom('message', 'follow', 'unfollow', 'unsend', 'memberJoined', 'botSuspended')
const person = objectWith('type', { userId: textOrJson })
const lineEvent = fc.oneof(
  json,
  objectWith('unsend', {
    type: fc.oneof(kind, json),
    timestamp: fc.oneof(fc.constant(1_700_000_000_000), json, fc.double()),
    webhookEventId: fc.oneof(fc.uuid(), json),
    source: fc.oneof(person, json),
    message: fc.oneof(objectWith('type', { id: textOrJson }), json),
    joined: fc.oneof(fc.record({ members: fc.array(fc.oneof(person, json), { maxLength: 3 }) }), json),
  }),
)

const chatCallback = fc.oneof(
  json,
  objectWith('id created_at updated_at conversation contact_inbox meta messages', { event: text }),
)

const trackingEvent = fc.oneof(
  json,
  objectWith('timestamp sentAt properties event traits', {
    ...{ type: text, userId: textOrJson, messageId: textOrJson },
  }),
)

const path = fc.oneof(
  fc.constantFrom('/api', '/api/health', '/api/audience', '/api/audience/1', '/api/tracking'),
  fc.constantFrom('/api/line/1', '/api/mbox/callback/x', '/api/line-oa/verify'),
  fc.constantFrom('/api/tracking/v1/track', '/api/tracking/b', '/api/tracking/m', '/api/tracking/x'),
  fc.webPath().map((each) => `/${each.replace(/^\/+/, '')}`),
)

const headers = fc.dictionary(
  fc.oneof(
    fc.constantFrom('x-client-id', 'x-client-secret', 'x-api-key', 'x-line-signature', 'authorization'),
    fc.constantFrom('accept', 'content-type', 'origin', 'if-match', 'x-forwarded-for'),
    fc.constant('x-chatwoot-timestamp'),
  ),
  headerValue,
)

interface RandomRequest {
  method: string
  url: string
  headers: Record<string, string>
  body?: string | Buffer
  /** the expected status; without one, any from 200 to 499 is right */
  status?: number
}

const listRequest = ({ headers }: Tenant): fc.Arbitrary<RandomRequest> =>
  fc
    .tuple(
      fc.array(queryParameter, { maxLength: 4 }),
      fc.constantFrom('*/*', 'text/csv', 'application/x-ndjson'),
    )
    .map(([parameters, accept]) => {
      const encoded = parameters.map((pair) => pair.map((part) => encodeURIComponent(part.toWellFormed())))
      const query = encoded.map((pair) => pair.join('=')).join('&')
      return { method: 'GET', url: `/api/audience?${query}`, headers: { ...headers, accept } }
    })

const memberRequest = ({ headers }: Tenant): fc.Arbitrary<RandomRequest> =>
  fc.record({
    method: fc.constantFrom('PUT', 'DELETE'),
    url: fc
      .oneof(text, fc.bigInt().map(String))
      .map((id) => `/api/audience/${encodeURIComponent(id.toWellFormed())}`),
    headers: headerValue.map((ifMatch) => ({
      ...headers,
      'content-type': 'application/json',
      'if-match': ifMatch,
    })),
    body: memberUpdate,
  })

const signedDelivery = ({ accountId, channelSecret }: Tenant): fc.Arbitrary<RandomRequest> =>
  fc.tuple(fc.array(lineEvent, { maxLength: 4 }), json).map(([events, destination]) => {
    const body = JSON.stringify({ destination, events })
    const signature = createHmac('sha256', channelSecret).update(body).digest('base64')
    const headers = { 'x-line-signature': signature }
    return { method: 'POST', url: `/api/line/${accountId}`, headers, body, status: 200 }
  })

const chatRequest = ({ oaHash }: Tenant): fc.Arbitrary<RandomRequest> =>
  fc.record({
    method: fc.constant('POST'),
    url: fc.constant(`/api/mbox/callback/${oaHash}`),
    headers: fc.record({ 'x-chatwoot-delivery': headerValue }),
    body: chatCallback.map((callback) => JSON.stringify(callback)),
  })

const trackingRequest = ({ trackingKey }: Tenant): fc.Arbitrary<RandomRequest> =>
  fc
    .tuple(
      fc.constantFrom('', '/v1/identify', '/t', '/v1/batch', '/api/s/s2s/page'),
      fc.oneof(
        fc.array(trackingEvent, { maxLength: 4 }).map((batch) => ({ batch })),
        trackingEvent,
      ),
      json,
    )
    .map(([call, events, sentAt]) => ({
      method: 'POST',
      url: `/api/tracking${call}`,
      headers: { 'content-type': 'text/plain' },
      body: JSON.stringify({ ...(events as object), writeKey: trackingKey, sentAt }),
    }))

const anyRequest = fc.oneof(
  fc.record({ method: fc.constantFrom('GET', 'HEAD'), url: path, headers }),
  fc.record({
    method: fc.constantFrom('POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'),
    url: path,
    headers,
    body: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  }),
)

/**
 * Sends random requests to a service of its own, `runs` of each kind. No answer is 5xx, no error escapes its request, and
 * the prototype of objects stays as it is.
 */
export async function describeRandomRequests(runs: number): Promise<void> {
  const { service, tenant } = await setUpService()

  const uncaught: unknown[] = []
  process.on('uncaughtException', (error) => uncaught.push(error))
  afterAll(() => {
    expect(uncaught).toEqual([])
    expect(Object.keys(Object.prototype)).toEqual([])
  })

  async function send({ method, url, headers, body, status }: RandomRequest): Promise<void> {
    const payload = body === undefined ? {} : { payload: body }
    const answer = await service.app.inject({ method: method as 'GET', url, headers, ...payload })
    expect(answer.statusCode, answer.body).toBeGreaterThanOrEqual(200)
    expect(answer.statusCode, answer.body).toBeLessThan(500)
    if (status !== undefined) expect(answer.statusCode, answer.body).toBe(status)
  }

  describe('the service survives random', () => {
    it.each([
      ['queries', listRequest(tenant)],
      ['updates and erasures', memberRequest(tenant)],
      ['signed deliveries', signedDelivery(tenant)],
      ['chat callbacks', chatRequest(tenant)],
      ['tracking events', trackingRequest(tenant)],
      ['methods, paths, headers and bodies', anyRequest],
    ])('%s', async (_what, requests) => {
      await fc.assert(fc.asyncProperty(requests, send), { numRuns: runs })
    })
  })
}
