/** EGRESS_PROXY: every way out goes through the proxy, which resolves names, and none of its faults does harm. */
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { isDown, sendNow } from '../../src/endpoints/post.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { startHeartbeat } from '../../src/watch/notifications/heartbeat.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { canMakeCertificates, makeAuthority } from '../support/certificates.ts'
import { type ConnectProxy, PASSWORD, routeThrough, startConnectProxy } from '../support/connect-proxy.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { serveForTest } from '../support/http-server.ts'
import { SILENT_LOG } from '../support/notifications.ts'

const MESSAGE = { headers: { 'content-type': 'application/json' }, body: '{}' }

/** Of LINE, to both calls. */
const RESPONSE = {
  ...{
    userId: `U${'1'.repeat(32)}`,
    basicId: '@1',
    displayName: 'x',
    chatMode: 'bot',
    markAsReadMode: 'auto',
  },
  audienceGroupId: 7,
}

/** Sends one message, as endpoints and notifications do. */
const send = (proxy: ConnectProxy, url: string, allow_private_network = false, route = routeThrough(proxy)) =>
  sendNow('test', { url, allow_private_network }, MESSAGE, { isOwnUrl: () => false, route })

it('sends deliveries through the proxy by the name of the host, on a connection that is used again', async () => {
  const proxy = await startConnectProxy()
  const receiver = await startReceiver()
  proxy.names.set('bot.example', new URL(receiver.url).port)
  const { service, tenant, addEndpoint } = await startSending(routeThrough(proxy))
  await addEndpoint('http://bot.example:8080/webhook')
  for (const count of [1, 2]) {
    await service.deliver(tenant, [lineEvent('follow', `U${count}`)])
    await expect.poll(() => receiver.received).toHaveLength(count)
  }
  expect(proxy.asked).toEqual(['bot.example:8080'])
  const login = Buffer.from(`user:${PASSWORD}`).toString('base64')
  expect(proxy.headers[0]).toMatchObject({
    host: 'bot.example:8080',
    'proxy-authorization': `Basic ${login}`,
  })
})

it('calls LINE and uploads files through the proxy', async () => {
  const proxy = await startConnectProxy()
  const received: string[] = []
  const platform = await serveForTest(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    received.push(`${request.method} ${request.url} ${request.headers.authorization} ${body}`)
    response.setHeader('content-type', 'application/json').end(JSON.stringify(RESPONSE))
  })
  proxy.names.set('line.example', new URL(platform).port)
  const lineApi = new LineApi('http://line.example:80', { fetch: routeThrough(proxy).fetch })
  const account = { channelAccessToken: new Secret('token-of-line'), channelId: null, channelSecret: null }
  expect(await lineApi.botInfo(account as never)).toMatchObject({ ok: true })
  const uploaded = await lineApi.audienceGroups.upload(account as never, 'vip', new Blob(['U1\nU2\n']))
  expect(uploaded).toMatchObject({ ok: true, value: 7n })
  expect(received[0]).toMatch(/^GET \/v2\/bot\/info Bearer token-of-line $/)
  expect(received[1]).toContain('U1\nU2\n')
  expect(new Set(proxy.asked)).toEqual(new Set(['line.example:80']))
})

it.each([
  ['responds with status 204', 204, true],
  ['responds with status 404', 404, false],
])('requests HEARTBEAT_URL through the proxy, which %s', async (_, status, isAccepted) => {
  const proxy = await startConnectProxy()
  const url = await serveForTest((_request, response) => void response.writeHead(status).end())
  const warnings: string[] = []
  const database = { state: async () => 'up', query: async () => [{ isChosen: true }] } as never
  const log = { ...(SILENT_LOG as object), warn: (text: string) => warnings.push(text) } as never
  const { fetch } = routeThrough(proxy)
  onTestFinished(startHeartbeat(database, new Secret(url), log, { tryMs: 10, fetch }))
  await expect.poll(() => proxy.asked.length).toBeGreaterThan(0)
  if (!isAccepted) await expect.poll(() => warnings).toHaveLength(1)
  expect(warnings).toHaveLength(isAccepted ? 0 : 1)
})

it.each([
  'https://10.0.0.1/',
  'https://[fd00::1]/',
  'https://[::ffff:127.0.0.1]/',
  'https://[64:ff9b::10.0.0.1]/',
  'https://2130706433/',
  'https://localhost/',
  'https://metadata.localhost./',
  'http://bot.example/',
])('refuses %s without asking the proxy', async (url) => {
  const proxy = await startConnectProxy()
  expect(await send(proxy, url)).toMatchObject({ status: null })
  expect(proxy.asked).toEqual([])
})

it('sends to a literal private address through the proxy if the endpoint allows it', async () => {
  const proxy = await startConnectProxy()
  const receiver = await startReceiver()
  expect((await send(proxy, receiver.url, true)).status).toBe(200)
  expect(proxy.asked).toEqual([new URL(receiver.url).host])
})

const FLOOD = 200_000

it.each<[string, (socket: Socket) => void, RegExp]>([
  [
    'demands a password',
    (socket) => socket.end('HTTP/1.1 407 x\r\nProxy-Authenticate: Basic\r\n\r\n'),
    /status 407\); correct/,
  ],
  [
    'refuses',
    (socket) => socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nnono'),
    /status 403/,
  ],
  ['finds no receiver', (socket) => socket.end('HTTP/1.1 502 x\r\n\r\n'), /status 502/],
  ['redirects', (socket) => socket.end('HTTP/1.1 302 x\r\nlocation: http://10.0.0.1/\r\n\r\n'), /status 302/],
  ['closes the connection', (socket) => socket.end(), /ECONNRESET/],
  ['resets the connection', (socket) => socket.resetAndDestroy(), /ECONNRESET/],
  ['sends no HTTP', (socket) => socket.end('SSH-2.0-x\r\n'), /HPE_INVALID/],
  [
    'sends endless headers',
    (socket) => socket.write(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(FLOOD)}`),
    /HPE_HEADER_OVERFLOW/,
  ],
  [
    'sends more than its response',
    (socket) => socket.write('HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n'),
    /status 200/,
  ],
  [
    'switches protocols',
    (socket) => socket.write('HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'),
    /status 101/,
  ],
])('counts the receiver as down and names the proxy if it %s', async (_, answer, reason) => {
  const proxy = await startConnectProxy()
  proxy.answer = answer
  for (const [url, isPrivate] of [
    ['https://bot.example/', false],
    ['http://bot.example/', true],
  ] as const) {
    const response = await send(proxy, url, isPrivate)
    expect(response).toMatchObject({ status: null, reason: expect.stringMatching(reason) })
    expect(response.reason).toMatch(/^the proxy of EGRESS_PROXY /)
    expect(isDown(response)).toBe(true)
    for (const secret of [PASSWORD, encodeURIComponent(PASSWORD), 'user:'])
      expect(JSON.stringify(response)).not.toContain(secret)
  }
})

it('counts the receiver as down if the proxy is unreachable', async () => {
  const route = routeThrough({ ...(await startConnectProxy()), url: 'http://127.0.0.1:9' })
  const response = await send({} as never, 'https://bot.example/', false, route)
  expect(response).toMatchObject({ status: null, reason: expect.stringMatching(/^the proxy .*ECONNREFUSED/) })
})

describe.runIf(canMakeCertificates('TLS through a proxy is'))('with TLS', () => {
  const authority = makeAuthority()

  async function startTls(name: string, proxy: ConnectProxy, host = name) {
    const names: unknown[] = []
    const server = createServer(authority.issue(name), (request, response) => {
      names.push((request.socket as Socket & { servername?: string }).servername)
      request.resume().on('end', () => response.end('ok'))
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    proxy.names.set(host, String((server.address() as AddressInfo).port))
    const route = routeThrough(proxy)
    route.agents['https:'].options.ca = authority.authority
    return { names, route }
  }

  it('checks the certificate of the receiver behind the proxy, and uses the connection again', async () => {
    const proxy = await startConnectProxy()
    const { names, route } = await startTls('bot.example', proxy)
    for (let no = 0; no < 3; no += 1)
      expect(await send(proxy, 'https://bot.example/hook', false, route)).toMatchObject({ status: 200 })
    expect(names).toEqual(Array(3).fill('bot.example'))
    expect(proxy.asked).toEqual(['bot.example:443'])
  })

  it('sends nothing to a server with the certificate of another name', async () => {
    const proxy = await startConnectProxy()
    const { names, route } = await startTls('evil.example', proxy, 'bot.example')
    const response = await send(proxy, 'https://bot.example/hook', false, route)
    expect(response).toMatchObject({ status: null, reason: 'no response: ERR_TLS_CERT_ALTNAME_INVALID' })
    expect(names).toEqual([])
  })

  it('sends nothing to a server of an unknown authority', async () => {
    const proxy = await startConnectProxy()
    const { names } = await startTls('bot.example', proxy)
    const response = await send(proxy, 'https://bot.example/hook')
    expect(response.status).toBeNull()
    expect(names).toEqual([])
  })
})
