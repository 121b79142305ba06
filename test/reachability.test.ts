/** The examination of PUBLIC_URL, with servers on loopback, a name server and a certificate authority of this file. */
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { serveMetrics } from '../src/observability/metrics-page.ts'
import { examineReachability, type ReachabilityOptions } from '../src/operator/reachability.ts'
import { type Certificate, canMakeCertificates, makeAuthority } from './support/certificates.ts'
import { runCommand } from './support/command.ts'
import { signedIn, startConsole } from './support/console.ts'
import { urlOf } from './support/database.ts'
import { type NameAnswer, startNameServer } from './support/name-server.ts'
import { setUpService } from './support/service.ts'

const { database, connection, service } = await setUpService()

const NAME = 'oa.example.com'
const CAN_TLS = canMakeCertificates('what a certificate, a proxy or a tunnel does to PUBLIC_URL is')
const maker = CAN_TLS ? makeAuthority() : null
const valid = maker?.issue(NAME) as Certificate

const SERVICE: RequestListener = (_request, response) => {
  response.setHeader('content-type', 'application/json').end('{"name":"oa-audience","version":"9.9.9"}')
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

async function startNames(answer: NameAnswer = { address: '127.0.0.1' }): Promise<string[]> {
  return [(await startNameServer((name) => (name === NAME ? answer : 'none'))).server]
}

/** Examines a TLS server behind the name. Returns its findings without those that every server on loopback has. */
async function examineServer(
  listener: RequestListener,
  {
    certificate = valid,
    path = '',
    ...options
  }: ReachabilityOptions & {
    certificate?: Certificate
    path?: string
  } = {},
) {
  const requests: string[] = []
  const server = createHttpsServer(certificate, (request, response) => {
    requests.push(`${request.method} ${request.url}`)
    listener(request, response)
  })
  server.on('tlsClientError', () => undefined)
  const port = await listen(server)
  const { findings } = await examineReachability(`https://${NAME}:${port}${path}`, {
    nameServers: await startNames(),
    authorities: [maker?.authority ?? ''],
    ...options,
  })
  const codes = findings.map(({ code }) => code).filter((code) => code !== 'url_other_port')
  expect(codes.shift()).toBe('name_private')
  return { codes, findings, requests, last: findings.at(-1) }
}

const codesOf = async (publicUrl: string | null, options: ReachabilityOptions = {}) =>
  (await examineReachability(publicUrl, options)).findings.map(({ code }) => code)

describe('the address', () => {
  it.each([
    ['reports that it is unset', null, ['url_unset']],
    ['reports http, and sends nothing', 'http://127.0.0.1:9', ['url_not_https']],
    ['reports loopback', 'https://127.0.0.1:9', ['url_other_port', 'address_private', 'not_connected']],
    ['reports IPv6 loopback', 'https://[::1]:9', ['url_other_port', 'address_private', 'not_connected']],
    [
      'reports one that is longer than LINE accepts',
      `https://127.0.0.1:9/${'x'.repeat(500)}`,
      ['url_too_long', 'url_other_port', 'address_private', 'not_connected'],
    ],
  ])('%s', async (_does, publicUrl, codes) => {
    expect(await codesOf(publicUrl)).toEqual(codes)
  })

  // The addresses of other networks are in test/unit/endpoint-address.test.ts. Tests connect to loopback only.
  it('reports a name that resolves to an address that is not public', async () => {
    const { findings } = await examineReachability(`https://${NAME}:9`, {
      nameServers: await startNames({ address: '127.0.1.1' }),
    })
    expect(findings.slice(1).map(({ code, detail }) => [code, detail])).toEqual([
      ['name_private', '127.0.1.1'],
      ['not_connected', 'ECONNREFUSED'],
    ])
  })

  it('reports a name without an address', async () => {
    const { findings } = await examineReachability(`https://${NAME}`, {
      nameServers: await startNames('none'),
    })
    expect(findings).toMatchObject([{ code: 'name_unresolved', severity: 'error', detail: NAME }])
  })

  it('ends in time if the name server does not respond', async () => {
    const nameServers = await startNames('silent')
    expect(await codesOf(`https://${NAME}`, { nameServers, timeoutMs: 100 })).toEqual(['name_unresolved'])
  })

  it('ends in time if the server accepts connections and sends nothing', async () => {
    const port = await listen(createTcpServer(() => undefined))
    const { findings } = await examineReachability(`https://127.0.0.1:${port}`, { timeoutMs: 100 })
    expect(findings.at(-1)).toMatchObject({ code: 'tls_failed', detail: 'ETIMEDOUT' })
  })

  it('reports a server without TLS', async () => {
    const port = await listen(createHttpServer(SERVICE))
    expect(await codesOf(`https://127.0.0.1:${port}`)).toContain('tls_failed')
  })
})

describe.runIf(CAN_TLS)('the certificate', () => {
  const issue = (...args: Parameters<NonNullable<typeof maker>['issue']>) =>
    (maker as NonNullable<typeof maker>).issue(...args)

  it('may be of a public authority, and one request is enough', async () => {
    const { codes, requests } = await examineServer(SERVICE)
    expect({ codes, requests }).toEqual({ codes: ['reached'], requests: ['GET /api'] })
  })

  it('may have an intermediate authority, whose certificate the server sends', async () => {
    const { key, cert } = issue(NAME, [-1, 90], 'intermediate')
    const whole = { key, cert: cert + maker?.intermediate }
    expect((await examineServer(SERVICE, { certificate: whole })).codes).toEqual(['reached'])
    expect((await examineServer(SERVICE, { certificate: { key, cert } })).codes).toEqual([
      'certificate_incomplete',
    ])
  })

  it.each([
    ['is self-signed', () => maker?.selfSigned(NAME), 'certificate_untrusted'],
    ['is for another name', () => issue('other.example.com'), 'certificate_wrong_name'],
    ['has expired', () => issue(NAME, [-90, -1]), 'certificate_expired'],
    ['is not valid yet', () => issue(NAME, [1, 90]), 'certificate_not_yet_valid'],
  ])('is reported if it %s, and no request is sent', async (_why, make, code) => {
    const { codes, requests } = await examineServer(SERVICE, { certificate: make() as Certificate })
    expect({ codes, requests }).toEqual({ codes: [code], requests: [] })
  })

  it('is reported with its date if it ends soon, but not if it lives for days only', async () => {
    const certificate = issue(NAME, [-80, 10])
    const { codes, findings } = await examineServer(SERVICE, { certificate })
    expect(codes).toEqual(['certificate_expires_soon', 'reached'])
    const date = new Date(Date.now() + 10 * 86_400_000).toISOString().slice(0, 10)
    expect(findings.at(-2)).toMatchObject({ severity: 'warning', detail: date })
    expect((await examineServer(SERVICE, { certificate: issue(NAME, [-2, 4]) })).codes).toEqual(['reached'])
  })

  it('of a private authority is refused even if this machine trusts it', async () => {
    const { codes } = await examineServer(SERVICE, { authorities: [issue('private').cert] })
    expect(codes).toEqual(['certificate_incomplete'])
  })
})

describe.runIf(CAN_TLS)('the response', () => {
  const respond =
    (status: number, body = '', headers: Record<string, string> = {}): RequestListener =>
    (_request, response) =>
      void response.writeHead(status, headers).end(body)
  const HTML = { 'content-type': 'text/html; charset=utf-8' }
  const LOCATION = 'https://login.example.com/start?token=secret'

  it.each<[string, RequestListener, string, string]>([
    ['a redirect', respond(302, '', { location: LOCATION }), 'redirected', 'https://login.example.com'],
    ['a login', respond(401, '', { 'www-authenticate': 'Basic' }), 'login_required', '401'],
    ['the page of a tunnel', respond(200, '<h1>Visit site</h1>', HTML), 'web_page', ''],
    ['a proxy without its service', respond(502, '<h1>502</h1>', HTML), 'service_unavailable', '502'],
    ['a tunnel that is offline', respond(404, '<h1>offline</h1>', HTML), 'other_service', '404'],
    ['another service', respond(200, '{"name":"other"}'), 'other_service', '200'],
    ['JSON that is not an object', respond(200, 'null'), 'other_service', '200'],
    ['a body without end', respond(200, 'x'.repeat(100_000)), 'other_service', '200'],
    [
      'no HTTP',
      (request) => void request.socket.end('garbage\r\n\r\n'),
      'no_response',
      'HPE_INVALID_CONSTANT',
    ],
    ['a closed connection', (request) => void request.socket.destroy(), 'no_response', 'ECONNRESET'],
  ])('distinguishes %s from this service', async (_what, listener, code, detail) => {
    const { last, requests } = await examineServer(listener)
    expect(last).toMatchObject({ code, detail, severity: 'error' })
    expect(requests).toEqual(['GET /api'])
    expect(JSON.stringify(last)).not.toMatch(/secret|garbage|<h1>/)
  })

  it('may switch to a protocol that was not requested, and the examination still ends', async () => {
    const upgrade: RequestListener = ({ socket }) =>
      void socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n')
    const { last } = await examineServer(upgrade, { timeoutMs: 1_000 })
    expect(last).toMatchObject({ code: 'no_response', severity: 'error' })
  })

  it('must arrive in time', async () => {
    const { last } = await examineServer(() => undefined, { timeoutMs: 300 })
    expect(last).toMatchObject({ code: 'no_response', detail: 'ETIMEDOUT' })
  })
})

describe.runIf(CAN_TLS)('a proxy', () => {
  /** @param removed the beginning of the path that the proxy removes */
  const forwardTo =
    (target: string, removed = ''): RequestListener =>
    async (request, response) => {
      const answer = await fetch(target + (request.url ?? '').slice(removed.length))
      const headers = Object.fromEntries(answer.headers)
      delete headers['content-length']
      delete headers['content-encoding']
      response.writeHead(answer.status, headers).end(Buffer.from(await answer.arrayBuffer()))
    }

  it('that forwards to this service is correct, also below a path that it removes', async () => {
    expect((await examineServer(forwardTo(service.url))).codes).toEqual(['reached'])
    const path = '/audience'
    expect((await examineServer(forwardTo(service.url, path), { path })).codes).toEqual(['reached'])
  })

  it('that keeps a path which the service does not have is reported', async () => {
    const { last } = await examineServer(forwardTo(service.url), { path: '/audience' })
    expect(last).toMatchObject({ code: 'path_unknown', detail: '/audience/api' })
  })

  it('that forwards to the console is reported', async () => {
    const console = await startConsole(database)
    expect((await examineServer(forwardTo(console.url))).codes).toEqual(['console_reached'])
  })

  it('that forwards to the metrics is reported', async () => {
    const log = { info: () => undefined, warn: () => undefined }
    const page = { contentType: 'text/plain', metrics: async () => '' }
    const server = await serveMetrics(page, '127.0.0.1', 0, log)
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    expect((await examineServer(forwardTo(`http://127.0.0.1:${port}`))).codes).toEqual(['metrics_reached'])
  })
})

describe('the result', () => {
  it('is reported by doctor, each finding with its code', async () => {
    const env = { DATABASE_URL: urlOf(connection) }
    const publicUrl = { ...env, LINE_API_URL: 'http://127.0.0.1:9', PUBLIC_URL: 'http://127.0.0.1:9' }
    const { stdout, status } = await runCommand(['doctor', '--json'], publicUrl)
    expect(JSON.parse(stdout)).toContainEqual({
      check: 'PUBLIC_URL',
      severity: 'error',
      message: expect.stringMatching(/^PUBLIC_URL does not begin with https:.*Terminate TLS/),
      code: 'url_not_https',
    })
    expect(status).toBe(1)
  })

  it('is examined once by the console for operators who ask at the same time', async () => {
    const { url } = await startConsole(database, { config: { publicUrl: 'https://127.0.0.1:9' } })
    const operator = await signedIn(url)
    const [one, other] = await Promise.all([
      operator.get('/api/reachability'),
      operator.get('/api/reachability'),
    ])
    expect(one.json).toMatchObject({
      publicUrl: 'https://127.0.0.1:9',
      findings: [{ code: 'url_other_port' }, { code: 'address_private' }, { code: 'not_connected' }],
    })
    expect(other.json).toEqual(one.json)
  })
})
