/**
 * Each route × a shared cache, HEAD, a proxy that compresses, and two proxies in a row. The cache is tested with Varnish, too: see
 * faults/varnish.test.ts.
 */
import { describe, expect, it } from 'vitest'
import { METRICS_PATHS, TRACKING_PATHS } from '../../src/intake/tracking/calls.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { message } from '../support/chatwoot.ts'
import { addTenant } from '../support/database.ts'
import { BROKEN_HEADER, sendRaw, UNDECODABLE, UNKNOWN_EXPECTATION, WITHOUT_HOST } from '../support/raw.ts'
import { printedRoutes } from '../support/routes.ts'
import { type Answer, type Service, signedDelivery, startApp } from '../support/service.ts'
import { setUpVerification } from '../support/verification.ts'

const { database, platform, service, addVerifiable } = await setUpVerification()
const tenant = await addVerifiable()
const limited = await startApp(database, {
  config: {
    rateLimit: { max: 100, windowMs: 3_600_000, spareSigned: false },
    trustProxy: ['loopback', '10.0.0.0/8', 'fd00::/8'],
    lineApiUrl: platform.url,
  },
})

type Init = NonNullable<Parameters<Service['call']>[2]>
interface Request extends Init {
  path?: string
  status?: number
  isProtected?: boolean
  /** A file that is the same for everybody. */
  isFile?: boolean
}

const newMember = async () => (await service.addFollower(tenant)).id
const asClient = { isProtected: true, headers: { ...tenant.headers, 'content-type': 'application/json' } }
const delivery = async (path: string) => {
  const { init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
  return { path, ...(init as Init) }
}
const tracked = (path: string): Request => ({
  path: path.replace(':call', path.includes('/:call') ? 'track' : ''),
  body: JSON.stringify({ writeKey: tenant.trackingKey, type: 'track', userId: 'U1' }),
})
const tracking = [...TRACKING_PATHS, ...METRICS_PATHS].flatMap((path) => {
  const printed = path.replace(':call', ':')
  return [
    [`POST ${printed}`, () => tracked(path)],
    [`OPTIONS ${printed}`, () => ({ path: tracked(path).path, status: 204 })],
  ] as Array<[string, () => Request]>
})

/** A request to each route that succeeds. Where `:` is a parameter, it has a path. */
const REQUESTS: Record<string, () => Request | Promise<Request>> = {
  'GET /api': () => ({}),
  'HEAD /api': () => ({}),
  'GET /api/health': () => ({}),
  'HEAD /api/health': () => ({}),
  'POST /api/line/:': () => delivery(`/api/line/${tenant.accountId}`),
  'POST /api/Line/:': () => delivery(`/api/Line/${tenant.accountId}`),
  'POST /api/mbox/callback/:': () => ({
    path: `/api/mbox/callback/${tenant.oaHash}`,
    body: JSON.stringify({ event: 'message_created', ...message(randomUserId()) }),
  }),
  ...Object.fromEntries(tracking),
  'GET /api/audience': () => asClient,
  'PUT /api/audience/:': async () => ({
    ...asClient,
    path: `/api/audience/${await newMember()}`,
    body: '{}',
  }),
  'DELETE /api/audience/:': async () => ({
    ...{
      path: `/api/audience/${await newMember()}`,
      status: 204,
      isProtected: true,
      headers: tenant.headers,
    },
  }),
  'POST /api/line-oa/verify': () => ({ isProtected: true, headers: tenant.headers }),
  'GET /openapi.json': () => ({}),
  'GET /docs': () => ({}),
  'GET /docs/': () => ({}),
  'GET /docs/*': () => ({ path: '/docs/static/index.css', isFile: true }),
  'GET /docs/json': () => ({}),
  'GET /docs/yaml': () => ({}),
  'GET /docs/static/index.html': () => ({}),
  'GET /docs/static/swagger-initializer.js': () => ({}),
}
const ROUTES = Object.keys(REQUESTS)

it('every route has a request below', () => {
  expect(printedRoutes(service.app)).toEqual(ROUTES.toSorted())
})

/** Sends the request of a route, with other headers. */
async function send(route: string, to = service, { headers, ...other }: Partial<Request> = {}) {
  const [method = '', printed = ''] = route.split(' ')
  const { status = 200, isProtected = false, isFile = false, ...request } = await (REQUESTS[route]?.() ?? {})
  const init = { ...request, ...other, headers: { ...request.headers, ...headers } }
  const path = request.path ?? printed
  return { route, status, isProtected, isFile, path, init, answer: await to.call(method, path, init) }
}

/** No browser asks for a password because of such a challenge. */
const CHALLENGE = /^(?!basic|digest|negotiate|ntlm|bearer)[\w-]+ realm="[^"]+"$/i

function expectSafe({ status, headers }: Pick<Answer, 'status' | 'headers'>, isFile = false): void {
  expect(headers.get('x-content-type-options')).toBe('nosniff')
  expect(headers.get('cache-control')).toBe(isFile ? 'public, max-age=0' : 'no-store')
  if (status === 401) expect(headers.get('www-authenticate')).toMatch(CHALLENGE)
  else expect(headers.get('www-authenticate')).toBeNull()
}

describe.each(ROUTES)('%s', (route) => {
  it('keeps its responses out of caches, also those to HEAD, which it offers only if the table has it', async () => {
    const { answer, status, isFile, path, init } = await send(route)
    expect(answer.status, answer.text).toBe(status)
    expectSafe(answer, isFile)
    const head = await service.call('HEAD', path, { headers: init.headers ?? {} })
    expect(head).toMatchObject({ status: ROUTES.includes(`HEAD ${path}`) ? 200 : 404, text: '' })
    expectSafe(head)
  })

  it('responds with 401 and a challenge to a request without credentials, if it needs any', async () => {
    const none = { 'x-client-id': '', 'x-client-secret': '', 'x-api-key': '' }
    const { answer, isProtected } = await send(route, service, { headers: none })
    expect(answer.status === 401).toBe(isProtected)
    if (isProtected) expectSafe(answer)
  })

  it('shows a client of another organization nobody of the account', async () => {
    const { headers } = await addTenant(database)
    const { answer } = await send(route, service, { headers })
    for (const { userId } of await service.members(tenant)) expect(answer.text).not.toContain(userId)
  })

  it('counts a request for its client behind two proxies, of which the first names its port', async () => {
    const client = `198.51.100.${ROUTES.indexOf(route)}`
    const remaining = async (chain: string) => {
      const { answer } = await send(route, limited, { headers: { 'x-forwarded-for': chain } })
      return Number(answer.headers.get('ratelimit-remaining'))
    }
    const first = await remaining(`203.0.113.1, ${client}:1234, 10.1.2.3:8443`)
    // A redirect is a second request.
    expect(first).toBeGreaterThanOrEqual(98)
    expect(await remaining(`203.0.113.2, ${client}, [fd00::1]:8443, 10.1.2.5`)).toBeLessThan(first)
  })
})

it('a proxy that compresses makes weak the ETag of a member alone, which If-Match accepts', async () => {
  const sent = await Promise.all(ROUTES.map((route) => send(route)))
  const tagged = sent.filter(({ answer, isFile }) => !isFile && answer.headers.has('etag'))
  expect(tagged.map(({ route }) => route)).toEqual(['PUT /api/audience/:'])
  for (const [method, version] of [
    ['PUT', 'W/"1"'],
    ['DELETE', 'W/"2"'],
  ] as const) {
    for (const { path, init } of tagged) {
      const headers = { ...init.headers, 'if-match': version }
      const changed = await service.call(method, path, { headers, body: '{"tags":["a"]}' })
      expect(changed.status, method).toBe(method === 'PUT' ? 200 : 204)
    }
  }
})

it.each(['application/x-ndjson', 'text/csv'])('a stream of %s is kept out of caches', async (accept) => {
  const { answer } = await send('GET /api/audience', service, { headers: { accept } })
  expect(answer.headers.get('content-type')).toBe(`${accept}; charset=utf-8`)
  expectSafe(answer)
})

it.each([
  ['no route', { path: '/nowhere' }, 404],
  ['a missing file of the documentation', { path: '/docs/static/nothing.css' }, 404],
  ['an unknown member', { method: 'PUT', path: '/api/audience/1', ...asClient, body: '{}' }, 404],
  ['a wrong signature', { method: 'POST', path: `/api/line/${tenant.accountId}`, body: '{}' }, 403],
  ['no JSON', { method: 'POST', path: '/api/tracking', body: '{' }, 400],
  ['a body over 1 MiB', { method: 'POST', path: '/api/tracking', body: ' '.repeat(1024 * 1024 + 1) }, 413],
  ['a compressed body', { method: 'PUT', path: '/api/audience/1', ...compressed(), body: 'x' }, 415],
  ['no database', { path: '/api/audience', headers: tenant.headers, at: await startApp(null) }, 500],
])('a refusal because of %s is kept out of caches', async (_why, { path, ...init }, status) => {
  const { method = 'GET', at = service, ...rest } = init as Init & { method?: string; at?: Service }
  const answer = await at.call(method, path, rest)
  expect(answer.status).toBe(status)
  expectSafe(answer)
})

function compressed() {
  return { headers: { ...asClient.headers, 'content-encoding': 'br' } }
}

it.each([
  ['a broken header', 400, BROKEN_HEADER],
  ['an undecodable path', 400, UNDECODABLE],
  ['no host', 400, WITHOUT_HOST],
  ['another protocol', 400, 'HELO mail\r\n\r\n'],
  ['an unknown expectation', 417, UNKNOWN_EXPECTATION],
  ['headers over 16 KiB', 431, `GET /api HTTP/1.1\r\nhost: x\r\nx-long: ${'x'.repeat(20_000)}\r\n\r\n`],
])('the response to %s, which reaches no route, is kept out of caches', async (_why, status, bytes) => {
  const answer = await sendRaw(service, bytes)
  const [line = '', ...lines] = (answer.split('\r\n\r\n')[0] ?? '').split('\r\n')
  expect(line).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
  expectSafe({ status, headers: new Headers(lines.map((each) => each.split(': ') as [string, string])) })
})
