/** One rate limit per client address for all routes, counted in memory. */
import { expect, it } from 'vitest'
import { sendRaw, WITHOUT_HOST } from '../support/raw.ts'
import { type Service, setUpService, startApp } from '../support/service.ts'

const { database, tenant } = await setUpService()

const startLimited = (max: number, { trustProxy = [] as string[], spareSigned = false } = {}) =>
  startApp(database, {
    config: { rateLimit: { max, windowMs: 3_600_000, spareSigned }, trustProxy },
  })

const callFrom = (service: Service, address: string) =>
  service.call('GET', '/api', { headers: { 'x-forwarded-for': address } })

async function statusesOf(service: Service, paths: string[]): Promise<number[]> {
  const statuses = []
  for (const path of paths) statuses.push((await service.call('GET', path)).status)
  return statuses
}

it('a request counts on every route, on unknown paths and with wrong credentials', async () => {
  const service = await startLimited(4)
  const paths = ['/nowhere', '/api/audience', '/api/%zz', '/api/health', '/api', '/nowhere', '/api/%zz']
  expect(await statusesOf(service, paths)).toEqual([404, 401, 400, 200, 429, 429, 429])
})

it('a request counts without a host', async () => {
  const service = await startLimited(1)
  expect(await sendRaw(service, WITHOUT_HOST)).toMatch(/^HTTP\/1.1 400 [\s\S]+ratelimit-remaining: 0/)
  expect(await sendRaw(service, WITHOUT_HOST)).toMatch(/^HTTP\/1.1 429 /)
})

it('a response of any status has the state of the limit in its headers', async () => {
  const service = await startLimited(3)
  for (const [path, remaining] of [
    ['/api', '2'],
    ['/nowhere', '1'],
    ['/api/audience', '0'],
    ['/api', '0'],
  ] as const) {
    const { headers } = await service.call('GET', path)
    for (const prefix of ['', 'x-']) {
      expect(headers.get(`${prefix}ratelimit-limit`)).toBe('3')
      expect(headers.get(`${prefix}ratelimit-remaining`)).toBe(remaining)
      expect(Number(headers.get(`${prefix}ratelimit-reset`))).toBeGreaterThan(0)
    }
  }
})

it('a response has no such headers if the limit is 0', async () => {
  const service = await startLimited(0)
  expect((await service.call('GET', '/api')).headers.get('ratelimit-limit')).toBeNull()
})

it.each([
  ['an IPv4 address, with any port', '198.51.100.7:1234', '198.51.100.7:1235'],
  ['the /64 of an IPv6 address', '2001:db8:1:2::1', '2001:db8:1:2:ffff::9'],
  ['the /64 of an IPv6 address, with any port', '[2001:db8::1]:80', '2001:db8::2'],
  ['the same for all clients without a usable address', '_hidden', 'unknown'],
])('the client address is %s', async (_, first, second) => {
  const service = await startLimited(1, { trustProxy: ['loopback'] })
  expect((await callFrom(service, first)).status).toBe(200)
  expect((await callFrom(service, second)).status).toBe(429)
  expect((await callFrom(service, '2001:db8:1:3::1')).status).toBe(200)
})

it('the client address is not read from X-Forwarded-For without a trusted proxy', async () => {
  const service = await startLimited(1)
  expect((await callFrom(service, '198.51.100.1')).status).toBe(200)
  expect((await callFrom(service, '198.51.100.2')).status).toBe(429)
})

it('the client address is the last one in X-Forwarded-For that a trusted proxy added', async () => {
  const service = await startLimited(1, { trustProxy: ['loopback'] })
  expect((await callFrom(service, '203.0.113.9, 198.51.100.1')).status).toBe(200)
  expect((await callFrom(service, '203.0.113.8, 198.51.100.1')).status).toBe(429)
  expect((await callFrom(service, '198.51.100.1:80, 127.0.0.2:443, [::1]:8443')).status).toBe(429)
  expect((await callFrom(service, '198.51.100.2')).status).toBe(200)
})

it('with RATE_LIMIT_SPARE_SIGNED deliveries with a valid signature do not count, even if their body is not valid', async () => {
  const service = await startLimited(2, { spareSigned: true })
  for (let i = 0; i < 5; i += 1) expect((await service.deliver(tenant, [])).status).toBe(200)
  for (let i = 0; i < 5; i += 1) expect((await service.deliverRaw(tenant, 'no JSON')).status).toBe(400)
  expect((await service.call('GET', '/api')).headers.get('ratelimit-remaining')).toBe('1')
})

it('with RATE_LIMIT_SPARE_SIGNED deliveries with a wrong signature count', async () => {
  const service = await startLimited(2, { spareSigned: true })
  const init = { body: '{}', headers: { 'x-line-signature': 'x' } }
  const statuses = []
  for (let i = 0; i < 3; i += 1)
    statuses.push((await service.call('POST', `/api/line/${tenant.accountId}`, init)).status)
  expect(statuses).toEqual([403, 403, 429])
})
