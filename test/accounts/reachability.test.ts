/** The examination of PUBLIC_URL, with servers on loopback, a name server and a certificate authority of this file. */
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { examineReachability, type ReachabilityOptions } from '../../src/watch/reachability.ts'
import { type Certificate, canMakeCertificates, makeAuthority } from '../support/certificates.ts'
import { findingsOf } from '../support/command.ts'
import { startSignedIn } from '../support/console.ts'
import { type NameAnswer, startNameServer } from '../support/name-server.ts'
import { setUpService } from '../support/service.ts'

const { database, env, service } = await setUpService()

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

/** Examines a TLS server behind the name, and returns the requests that it received. */
async function examineServer(
  listener: RequestListener,
  { certificate = valid, path = '', ...options }: ReachabilityOptions & Behind = {},
) {
  const requests: string[] = []
  const server = createHttpsServer(certificate, (request, response) => {
    requests.push(`${request.method} ${request.url}`)
    listener(request, response)
  })
  server.on('tlsClientError', () => undefined)
  const port = await listen(server)
  const result = await examineReachability(`https://${NAME}:${port}${path}`, {
    nameServers: await startNames(),
    authorities: [maker?.authority ?? ''],
    ...options,
  })
  return { ...result, requests }
}

interface Behind {
  certificate?: Certificate
  path?: string
}

it.each([
  ['is unset', null],
  ['is an http address', 'http://127.0.0.1:9'],
])('without a certificate, the outcome is not_configured if PUBLIC_URL %s', async (_how, publicUrl) => {
  expect(await examineReachability(publicUrl)).toMatchObject({
    code: 'not_configured',
    severity: 'warning',
  })
})

it.each(['none', 'silent'] as const)(
  'without a certificate, the outcome is name_unresolved if the name servers return no address (%s)',
  async (answer) => {
    const nameServers = await startNames(answer)
    expect(await examineReachability(`https://${NAME}`, { nameServers, timeoutMs: 500 })).toMatchObject({
      code: 'name_unresolved',
      severity: 'error',
      detail: NAME,
    })
  },
  2_500,
)

it('without a certificate, the outcome is no_response if the connection is refused', async () => {
  const nameServers = await startNames({ address: '127.0.1.1' })
  expect(await examineReachability(`https://${NAME}:9`, { nameServers })).toMatchObject({
    code: 'no_response',
    severity: 'warning',
    detail: 'ECONNREFUSED',
  })
})

it('without a certificate, the outcome is no_response if the server accepts connections and sends nothing', async () => {
  const port = await listen(createTcpServer(() => undefined))
  expect(await examineReachability(`https://127.0.0.1:${port}`, { timeoutMs: 100 })).toMatchObject({
    code: 'no_response',
    detail: 'ETIMEDOUT',
  })
})

it('without a certificate, the outcome is certificate_refused if the server has no TLS', async () => {
  const port = await listen(createHttpServer(SERVICE))
  expect((await examineReachability(`https://127.0.0.1:${port}`)).code).toBe('certificate_refused')
})

describe.runIf(CAN_TLS)('with a certificate, the outcome', () => {
  const issue = (...args: Parameters<NonNullable<typeof maker>['issue']>) =>
    (maker as NonNullable<typeof maker>).issue(...args)
  const respond =
    (status: number, body = '', headers: Record<string, string> = {}): RequestListener =>
    (_request, response) =>
      void response.writeHead(status, headers).end(body)

  it.each([
    ['is self-signed', () => maker?.selfSigned(NAME), 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    ['is for another name', () => issue('other.example.com'), 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['has expired', () => issue(NAME, [-90, -1]), 'CERT_HAS_EXPIRED'],
    [
      'lacks its intermediate certificate',
      () => issue(NAME, [-1, 90], 'intermediate'),
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    ],
  ])('is certificate_refused if it %s, and no request is sent', async (_why, make, detail) => {
    const result = await examineServer(SERVICE, { certificate: make() as Certificate })
    expect(result).toMatchObject({ code: 'certificate_refused', severity: 'error', detail, requests: [] })
  })

  it.each<[string, RequestListener, string]>([
    ['redirects', respond(302, '', { location: 'https://login.example.com/?token=secret' }), '302'],
    ['sends a body without end', (_request, response) => void response.write('x'.repeat(100_000)), '200'],
    ['sends no HTTP', (request) => void request.socket.end('garbage\r\n\r\n'), 'HPE_INVALID_CONSTANT'],
  ])('is other_program if the server %s', async (_what, listener, detail) => {
    const result = await examineServer(listener)
    expect(result).toMatchObject({ code: 'other_program', severity: 'error', detail, requests: ['GET /api'] })
    expect(JSON.stringify(result)).not.toMatch(/secret|garbage/)
  })

  it.each<[string, RequestListener, string]>([
    ['closes the connection', (request) => void request.socket.destroy(), 'ECONNRESET'],
    ['sends no response', () => undefined, 'ETIMEDOUT'],
  ])('is no_response if the server %s', async (_what, listener, detail) => {
    expect(await examineServer(listener, { timeoutMs: 500 })).toMatchObject({ code: 'no_response', detail })
  })

  it('is reached if a proxy forwards to this service and removes the path of PUBLIC_URL', async () => {
    const path = '/audience'
    const forward: RequestListener = async (request, response) => {
      const answer = await fetch(service.url + (request.url ?? '').replace(path, ''))
      response.writeHead(answer.status).end(await answer.text())
    }
    const result = await examineServer(forward, { path })
    expect(result).toMatchObject({ code: 'reached', severity: 'ok', requests: ['GET /audience/api'] })
  })
})

it('the result is reported by doctor with its code', async () => {
  const variables = { ...env, PUBLIC_URL: 'http://127.0.0.1:9' }
  expect(await findingsOf(variables)).toContainEqual({
    check: 'PUBLIC_URL',
    severity: 'warning',
    message: expect.stringMatching(/^PUBLIC_URL is not set to an https:.*three ways/),
    code: 'not_configured',
  })
})

it('the result is reported by the console', async () => {
  const publicUrl = 'https://127.0.0.1:9'
  const { operator } = await startSignedIn(database, { config: { publicUrl } })
  const { json } = await operator.get('/api/fleet/reachability')
  expect(json).toMatchObject({ publicUrl, code: 'no_response', detail: 'ECONNREFUSED' })
})
