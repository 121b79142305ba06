/** Requests whose HTTP is malformed or ambiguous, sent as raw bytes. */
import { describe, expect, it } from 'vitest'
import { sendRaw } from './support/raw.ts'
import { setUpService, signedDelivery } from './support/service.ts'

const { service, tenant } = await setUpService()

const exchange = (bytes: string) => sendRaw(service, bytes)

const statusesIn = (answer: string) =>
  [...answer.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, code]) => Number(code))
const lines = (headers: Record<string, string>) =>
  Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')

const MALFORMED: Array<[string, string]> = [
  [
    'content-length and transfer-encoding (CL.TE)',
    'POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /api HTTP/1.1\r\nhost: x\r\n\r\n',
  ],
  [
    'two different content-lengths',
    'POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 30\r\n\r\n{}GET /api HTTP/1.1\r\nhost: x\r\n\r\n',
  ],
  ['a content-length with a sign', 'POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: +2\r\n\r\n{}'],
  [
    'an unknown transfer-encoding',
    'POST /api/tracking HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n',
  ],
  ['a space before the colon', 'GET /api HTTP/1.1\r\nhost : x\r\n\r\n'],
  ['a folded header', 'GET /api HTTP/1.1\r\nhost: x\r\nx-a: b\r\n c\r\n\r\n'],
  ['a bare line feed', 'GET /api HTTP/1.1\nhost: x\n\n'],
  ['a NUL character in a header', 'GET /api HTTP/1.1\r\nhost: x\r\nx-a: b\0c\r\n\r\n'],
  ['a path of 20,000 characters', `GET /api/${'x'.repeat(20_000)} HTTP/1.1\r\nhost: x\r\n\r\n`],
  [
    'a chunk size that overflows',
    'POST /api/tracking HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n',
  ],
  ['a TLS handshake', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
]

describe('a connection', () => {
  it.each(MALFORMED)('with %s is answered once and closed', async (_what, bytes) => {
    const statuses = statusesIn(await exchange(bytes))
    expect(statuses).toHaveLength(1)
    expect([400, 408, 413, 431]).toContain(statuses[0])
  })
})

describe('a request', () => {
  it.each([
    ['x-client-id', 401, 'Unauthorized'],
    ['x-api-key', 200, 'null'],
  ])('with two values of %s does not gain access', async (name, status, text) => {
    const credentials = lines(tenant.headers)
    const answer = await exchange(
      `GET /api/audience HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${credentials}${name}: another\r\n\r\n`,
    )
    expect(statusesIn(answer)).toEqual([status])
    expect(answer).toContain(text)
  })

  it('with two values of x-line-signature is rejected with 403', async () => {
    const { path, init } = signedDelivery(tenant, [])
    const { headers, body } = init as { headers: Record<string, string>; body: string }
    const head = `POST ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${body.length}\r\n`
    const signed = lines(headers)
    expect(statusesIn(await exchange(`${head}${signed}\r\n${body}`))).toEqual([200])
    expect(statusesIn(await exchange(`${head}${signed}x-line-signature: another\r\n\r\n${body}`))).toEqual([
      403,
    ])
  })

  it.each(
    `
    /api/% /api/audience/%ff /api/line/%c0%80 /api/mbox/callback/%e0%80 /%%% /api?q=%ff
    /api/audience?q=%E0%A4%A
  `
      .trim()
      .split(/\s+/),
  )('for %s, whose percent-encoding is broken, is rejected', async (path) => {
    const answer = await exchange(`GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`)
    const [status] = statusesIn(answer)
    expect([400, 404]).toContain(status)
  })
})
