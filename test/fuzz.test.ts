/** Whatever comes in: never a 5xx, never a crash, never a polluted prototype. fast-check prints the seed of what fails. */
import { connect } from 'node:net'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { signLine } from '../src/intake/line/signature.ts'
import { Secret } from '../src/secret.ts'
import { setUpFile } from './support/service.ts'

const { service, tenant } = await setUpFile()
const RUNS = 2_000

const uncaught: unknown[] = []
process.on('uncaughtException', (error) => uncaught.push(error))
afterAll(() => {
  expect(uncaught).toEqual([])
  expect(Object.keys(Object.prototype)).toEqual([])
})

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 30 }),
  fc.constantFrom(
    '',
    '\u0000',
    '\ud800',
    '__proto__',
    'constructor',
    "' or 1=1 --",
    '%00',
    '../..',
    '😀'.repeat(50),
    '9'.repeat(40),
    '-1',
    '1e999',
  ),
)
const json = fc.oneof(
  { weight: 3, arbitrary: fc.jsonValue({ maxDepth: 4 }) },
  {
    weight: 1,
    arbitrary: fc.dictionary(
      fc.constantFrom('__proto__', 'constructor', 'toString', 'length'),
      fc.jsonValue(),
    ),
  },
)
/** A header's value as far as a client may send it. */
const headerValue = fc.string({ unit: 'grapheme-ascii', maxLength: 60 })

async function ask(method: string, path: string, headers: Record<string, string>, body?: string | Buffer) {
  const { statusCode, body: answer } = await service.app.inject({
    method: method as 'GET',
    url: path,
    headers,
    ...(body === undefined ? {} : { payload: body }),
  })
  expect(statusCode, `${method} ${path}: ${answer}`).toBeLessThan(500)
  expect(statusCode).toBeGreaterThanOrEqual(200)
  return statusCode
}

const query = (parameters: Array<[string, string]>) =>
  parameters
    .map(
      ([name, value]) =>
        `${encodeURIComponent(name.toWellFormed())}=${encodeURIComponent(value.toWellFormed())}`,
    )
    .join('&')

describe('thousands of', () => {
  const options = { numRuns: RUNS }

  it('queries', async () => {
    const names = fc.constantFrom(
      'limit',
      'cursor',
      'userId',
      'externalId',
      'relationship',
      'tag',
      'q',
      'updatedSince',
      '__proto__',
    )
    const times = fc.date({ noInvalidDate: true }).map((date) => date.toISOString())
    const cursors = fc
      .uint8Array({ minLength: 0, maxLength: 40 })
      .map((bytes) => Buffer.from(bytes).toString('base64url'))
    const parameters = fc.array(
      fc.tuple(names, fc.oneof(text, times, cursors, fc.constantFrom('1', '200', 'vip'))),
      { maxLength: 4 },
    )
    await fc.assert(
      fc.asyncProperty(
        parameters,
        fc.constantFrom('*/*', 'text/csv', 'application/x-ndjson'),
        async (list, accept) => {
          await ask('GET', `/api/audience?${query(list)}`, { ...tenant.headers, accept })
        },
      ),
      options,
    )
  }, 120_000)

  it('ids and updates', async () => {
    const ids = fc.oneof(text, fc.bigInt().map(String))
    const update = fc.oneof(
      json.map((value) => JSON.stringify(value)),
      fc
        .record({ externalId: json, tags: json, attributes: json }, { requiredKeys: [] })
        .map((value) => JSON.stringify(value)),
      text,
    )
    await fc.assert(
      fc.asyncProperty(
        ids,
        update,
        headerValue,
        fc.constantFrom('PUT', 'DELETE'),
        async (id, body, ifMatch, method) => {
          const path = `/api/audience/${encodeURIComponent(id.toWellFormed())}`
          await ask(
            method,
            path,
            { ...tenant.headers, 'content-type': 'application/json', 'if-match': ifMatch },
            body,
          )
        },
      ),
      options,
    )
  }, 120_000)

  it('signed deliveries', async () => {
    const event = fc.oneof(
      json,
      fc.record(
        {
          type: fc.oneof(
            fc.constantFrom('message', 'follow', 'unfollow', 'unsend', 'memberJoined', 'botSuspended'),
            json,
          ),
          timestamp: fc.oneof(fc.constant(1_700_000_000_000), json, fc.double()),
          webhookEventId: fc.oneof(fc.uuid(), json),
          source: fc.oneof(fc.record({ type: text, userId: fc.oneof(text, json) }), json),
          message: fc.oneof(fc.record({ id: fc.oneof(text, json), type: text }), json),
          unsend: json,
          joined: fc.oneof(
            fc.record({ members: fc.array(fc.oneof(fc.record({ userId: text }), json), { maxLength: 3 }) }),
            json,
          ),
        },
        { requiredKeys: ['type'] },
      ),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 4 }), json, async (events, destination) => {
        const body = JSON.stringify({ destination, events })
        const headers = { 'x-line-signature': signLine(body, new Secret(tenant.channelSecret)) }
        expect(await ask('POST', `/api/line/${tenant.accountId}`, headers, body)).toBe(200)
      }),
      options,
    )
  }, 120_000)

  it('chat callbacks and tracking events', async () => {
    const webhook = fc.oneof(
      json,
      fc.record(
        {
          event: text,
          id: json,
          created_at: json,
          updated_at: json,
          conversation: json,
          contact_inbox: json,
          meta: json,
          messages: json,
        },
        { requiredKeys: ['event'] },
      ),
    )
    const tracked = fc.oneof(
      json,
      fc.record(
        {
          type: text,
          userId: fc.oneof(text, json),
          messageId: fc.oneof(text, json),
          timestamp: json,
          sentAt: json,
          properties: json,
        },
        { requiredKeys: ['type'] },
      ),
    )
    await fc.assert(
      fc.asyncProperty(
        webhook,
        fc.array(tracked, { maxLength: 4 }),
        json,
        headerValue,
        async (chat, batch, sentAt, deliveryId) => {
          await ask(
            'POST',
            `/api/mbox/callback/${tenant.oaHash}`,
            { 'x-chatwoot-delivery': deliveryId },
            JSON.stringify(chat),
          )
          const writeKey = tenant.trackingKey
          await ask(
            'POST',
            '/api/tracking',
            { 'content-type': 'text/plain' },
            JSON.stringify({ writeKey, batch, sentAt }),
          )
        },
      ),
      options,
    )
  }, 120_000)

  it('headers, methods, paths and bytes that are no JSON', async () => {
    const method = fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'PATCH')
    const path = fc.oneof(
      fc.constantFrom(
        '/api',
        '/api/health',
        '/api/audience',
        '/api/audience/1',
        '/api/tracking',
        '/api/line/1',
        '/api/mbox/callback/x',
        '/api/line-oa/verify',
      ),
      fc.webPath().map((each) => `/${each.replace(/^\/+/, '')}`),
    )
    const headers = fc.dictionary(
      fc.constantFrom(
        'x-client-id',
        'x-client-secret',
        'x-api-key',
        'x-line-signature',
        'accept',
        'content-type',
        'origin',
        'x-forwarded-for',
        'if-match',
        'authorization',
        'x-chatwoot-timestamp',
      ),
      headerValue,
    )
    await fc.assert(
      fc.asyncProperty(
        method,
        path,
        headers,
        fc.uint8Array({ maxLength: 200 }),
        async (verb, where, sent, bytes) => {
          const hasBody = verb !== 'GET' && verb !== 'HEAD'
          await ask(verb, where, sent, hasBody ? Buffer.from(bytes) : undefined)
        },
      ),
      options,
    )
  }, 120_000)
})

describe('on the wire', () => {
  /** All that comes back until the service closes, or a quarter of a second after its last word. */
  function exchange(bytes: string): Promise<string> {
    return new Promise((resolve) => {
      const socket = connect(Number(new URL(service.url).port), '127.0.0.1', () =>
        socket.write(bytes, 'latin1'),
      )
      let answer = ''
      let quiet = setTimeout(() => socket.destroy(), 2_000)
      socket.on('data', (chunk) => {
        answer += chunk
        clearTimeout(quiet)
        quiet = setTimeout(() => socket.destroy(), 250)
      })
      socket.on('error', () => undefined)
      socket.on('close', () => resolve(answer))
    })
  }
  const answersIn = (answer: string) => answer.match(/HTTP\/1\.1 \d{3}/g) ?? []

  it.each([
    [
      'both lengths (CL.TE)',
      'POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /api HTTP/1.1\r\nhost: x\r\n\r\n',
    ],
    [
      'two lengths',
      'POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 30\r\n\r\n{}GET /api HTTP/1.1\r\nhost: x\r\n\r\n',
    ],
    ['a length that is none', 'POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: +2\r\n\r\n{}'],
    [
      'an obscured transfer-encoding',
      'POST /api/tracking HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n',
    ],
    ['a space before the colon', 'GET /api HTTP/1.1\r\nhost : x\r\n\r\n'],
    ['a folded header', 'GET /api HTTP/1.1\r\nhost: x\r\nx-a: b\r\n c\r\n\r\n'],
    ['a bare line feed', 'GET /api HTTP/1.1\nhost: x\n\n'],
    ['a header with the character 0', 'GET /api HTTP/1.1\r\nhost: x\r\nx-a: b\0c\r\n\r\n'],
    ['an oversized line', `GET /api/${'x'.repeat(20_000)} HTTP/1.1\r\nhost: x\r\n\r\n`],
    [
      'a chunk without end',
      `POST /api/tracking HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n`,
    ],
    ['no HTTP at all', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
  ])('%s is refused once, and nothing after it is taken for a request', async (_what, bytes) => {
    const answers = answersIn(await exchange(bytes))
    expect(answers).toHaveLength(1)
    expect(answers[0]).toMatch(/ (400|408|413|431)$/)
  })

  it.each(['x-client-id', 'x-api-key', 'x-line-signature'])('a doubled %s is no credential', async (name) => {
    const headers = Object.entries(tenant.headers)
      .map(([each, value]) => `${each}: ${value}\r\n`)
      .join('')
    const answer = await exchange(
      `GET /api/audience HTTP/1.1\r\nhost: x\r\n${headers}${name}: another\r\n\r\n`,
    )
    expect(answer).toMatch(name === 'x-line-signature' ? /^HTTP\/1\.1 200/ : /^HTTP\/1\.1 (401|200)/)
    if (name === 'x-api-key') expect(answer).toContain('null')
  })

  it('bad percent-encoding is 400 everywhere', async () => {
    for (const path of [
      '/api/%',
      '/api/audience/%ff',
      '/api/line/%c0%80',
      '/api/mbox/callback/%e0%80',
      '/%%%',
      '/api?q=%ff',
      '/api/audience?q=%E0%A4%A',
    ]) {
      const [status] = answersIn(await exchange(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`))
      expect(status, path).toMatch(/ (400|404)$/)
    }
  })
})
