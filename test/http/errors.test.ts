/** Every error has one shape, and every request is logged and counted once. */
import { get } from 'node:http'
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent } from '../../tools/simulator/events.ts'
import {
  BROKEN_HEADER,
  bodyOf,
  sendRaw,
  UNDECODABLE,
  UNKNOWN_EXPECTATION,
  WITHOUT_HOST,
} from '../support/raw.ts'
import { setUpService, signedDelivery, startApp, startObserved } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

it('an error response has the status, its name, a message and a request id', async () => {
  expect((await service.call('GET', '/nowhere')).json).toEqual({
    statusCode: 404,
    error: 'Not Found',
    message: 'No such route',
    requestId: expect.stringMatching(/^[0-9a-f-]{36}$/),
  })
})

it.each([
  ['a broken header', BROKEN_HEADER, 400],
  ['no host', WITHOUT_HOST, 400],
  ['an unknown expectation', UNKNOWN_EXPECTATION, 417],
  ['headers over 16 KiB', `GET /api HTTP/1.1\r\nHost: x\r\nx-long: ${'x'.repeat(20_000)}\r\n\r\n`, 431],
])('an error response has the same shape for a request with %s', async (_, request, statusCode) => {
  const answer = await sendRaw(service, request)
  expect(answer.startsWith(`HTTP/1.1 ${statusCode} `), answer).toBe(true)
  expect(bodyOf(answer)).toMatchObject({ statusCode, requestId: expect.any(String) })
})

it('an error response comes as soon as a chunked body breaks', async () => {
  const request = `POST /api/line/${tenant.accountId} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"ev"\r\nnonsense\r\n`
  expect(await sendRaw(service, request)).toContain('HTTP/1.1 400 Bad Request')
})

it('an answer to an earlier request on the same connection is sent before the answer to a broken request', async () => {
  const body = lineBody(tenant.botUserId, [lineEvent('follow', 'Upipelined')])
  const signature = signLine(body, new Secret(tenant.channelSecret))
  const good = `POST /api/line/${tenant.accountId} HTTP/1.1\r\nHost: x\r\nx-line-signature: ${signature}\r\ncontent-length: ${body.length}\r\n\r\n${body}`
  const answer = await sendRaw(service, `${good}GARBAGE\r\n\r\n`)
  expect(answer).toMatch(/^HTTP\/1.1 200 OK[\s\S]+"accepted":1[\s\S]+HTTP\/1.1 400 Bad Request/)
})

it('the log has no stack for a database that is down, because thousands of requests fail alike', async () => {
  const lines: string[] = []
  const log = { write: (line: string) => void lines.push(line) }
  const down = await startApp(null, { log, config: { logLevel: 'info' } })
  expect((await down.deliver(tenant, [lineEvent('follow', 'U1')])).status).toBe(503)
  const line = lines.find((text) => text.includes('request failed')) ?? ''
  expect(JSON.parse(line)).toMatchObject({ level: 40, code: 'unavailable' })
  expect(line).not.toContain('stack')
})

it('the log has request lines in the format of all other lines, whatever address a proxy sends', async () => {
  const lines: string[] = []
  const seen = await startApp(null, {
    log: { write: (line) => void lines.push(line) },
    config: { logLevel: 'info', trustProxy: ['127.0.0.1'] },
  })
  seen.app.log.info('for comparison')
  await seen.call('GET', '/api', { headers: { 'x-forwarded-for': '"level": 60' } })
  const written = lines.filter((line) => /comparison|"msg":"request"/.test(line))
  const [other, line] = written.map((text) => JSON.parse(text))
  expect(written.every((text) => text.endsWith('}\n'))).toBe(true)
  expect(line).toEqual({
    ...other,
    time: expect.any(Number),
    requestId: expect.stringMatching(/^[0-9a-f-]{36}$/),
    method: 'GET',
    route: '/api',
    status: 200,
    ms: expect.any(Number),
    ip: '"level": 60',
    msg: 'request',
  })
  expect(line.time).toBeGreaterThanOrEqual(other.time)
})

type Observed = Awaited<ReturnType<typeof startObserved>>
const requestLines = ({ noted }: Observed) => noted().filter(({ msg }) => msg === 'request')

it('the log and the metrics contain a request that reaches no route, under the requestId of its answer', async () => {
  const observed = await startObserved(null)
  for (const [request, status] of [
    [UNDECODABLE, 400],
    ['GARBAGE\r\n\r\n', 400],
    [UNKNOWN_EXPECTATION, 417],
  ] as const) {
    const { requestId } = bodyOf(await sendRaw(observed.seen, request))
    const lines = requestLines(observed).filter((line) => line.requestId === requestId)
    expect(lines).toEqual([expect.objectContaining({ route: 'unknown', status })])
  }
  const counts = await observed.counted()
  expect(counts).toContain('oa_audience_requests_total{method="any",route="unknown",status="400"} 2')
  expect(counts).toContain('oa_audience_requests_total{method="any",route="unknown",status="417"} 1')
})

it('the log and the metrics contain a request whose client disconnects before the answer, with status 499', async () => {
  const observed = await startObserved(database)
  await database.transaction(async (transaction) => {
    await transaction.query('lock table audience_member in access exclusive mode')
    // Not fetch: after an abort it opens another connection, for which the service's close would wait.
    const client = get(`${observed.seen.url}/api/audience`, { headers: tenant.headers, agent: false })
    client.on('error', () => undefined)
    await expect
      .poll(() =>
        database.query(`select from pg_locks where not granted and relation = 'audience_member'::regclass`),
      )
      .not.toHaveLength(0)
    client.destroy()
    await expect
      .poll(() => requestLines(observed))
      .toMatchObject([{ route: '/api/audience', status: 499, ip: '127.0.0.1' }])
  })
  expect(await observed.counted()).toContain(
    'oa_audience_requests_total{method="GET",route="/api/audience",status="499"} 1',
  )
})

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
  ['a bare line feed', 'GET /api HTTP/1.1\nhost: x\n\n'],
]

it.each(MALFORMED)('a connection with %s is answered once and closed', async (_what, bytes) => {
  const statuses = statusesIn(await exchange(bytes))
  expect(statuses).toHaveLength(1)
  expect([400, 408, 413, 431]).toContain(statuses[0])
})

it.each([
  ['x-client-id', 401, 'Unauthorized'],
  ['x-api-key', 200, 'null'],
])('a request with two values of %s does not gain access', async (name, status, text) => {
  const credentials = lines(tenant.headers)
  const answer = await exchange(
    `GET /api/audience HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${credentials}${name}: another\r\n\r\n`,
  )
  expect(statusesIn(answer)).toEqual([status])
  expect(answer).toContain(text)
})

it('a request with two values of x-line-signature is rejected with 403', async () => {
  const { path, init } = signedDelivery(tenant, [])
  const { headers, body } = init as { headers: Record<string, string>; body: string }
  const head = `POST ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${body.length}\r\n`
  const signed = lines(headers)
  expect(statusesIn(await exchange(`${head}${signed}\r\n${body}`))).toEqual([200])
  expect(statusesIn(await exchange(`${head}${signed}x-line-signature: another\r\n\r\n${body}`))).toEqual([
    403,
  ])
})
