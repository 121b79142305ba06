/** Body limits, methods, path ids and health, on every route. */
import { expect, it } from 'vitest'
import { setUpService, startApp } from '../support/service.ts'

const { service, tenant } = await setUpService()

const PUBLIC_POSTS = [
  ['LINE', `/api/line/${tenant.accountId}`],
  ['tracking', '/api/tracking'],
  ['mbox', `/api/mbox/callback/${tenant.oaHash}`],
] as const

const large = 'x'.repeat(1024 * 1024 + 1)
const compressed = { body: 'x', headers: { 'content-encoding': 'gzip', ...tenant.headers } }

it.each(PUBLIC_POSTS)('a body over 1 MiB is refused with 413 on the %s route', async (_, path) => {
  expect((await service.call('POST', path, { body: large })).json).toMatchObject({
    statusCode: 413,
    error: 'Payload Too Large',
  })
})

it('a body over 1 MiB is refused with 413 on a protected route', async () => {
  const init = { body: large, headers: tenant.headers }
  expect((await service.call('PUT', '/api/audience/1', init)).status).toBe(413)
})

// The tracking route reads gzip: see intake/tracking.test.ts.
const refusing = [...PUBLIC_POSTS, ['verification', '/api/line-oa/verify'] as const].filter(
  ([, path]) => path !== '/api/tracking',
)
it.each(refusing)('a body that claims gzip is refused with 415 on the %s route', async (_, path) => {
  expect((await service.call('POST', path, compressed)).status).toBe(415)
})

it.each(['/api', '/api/health', '/api/audience'])(
  'the method OPTIONS on %s is refused with 404',
  async (path) => {
    expect((await service.call('OPTIONS', path)).status).toBe(404)
  },
)

it.each(['abc', '1e3', '+1', '-1', '01', '9223372036854775808', '1'.repeat(3000), '%00', '1%202', '٣'])(
  'an id in a path that is not an int64 (%.30s) is answered with 404',
  async (id) => {
    const headers = { ...tenant.headers, 'content-type': 'application/json' }
    expect((await service.call('PUT', `/api/audience/${id}`, { headers, body: '{}' })).status).toBe(404)
    const erased = await service.call('DELETE', `/api/audience/${id}`, { headers })
    expect(erased.status).toBe(404)
    expect(erased.json.message).toMatch(/^Step 2: /)
    expect((await service.call('POST', `/api/line/${id}`, { body: '{}' })).status).toBe(404)
    expect((await service.call('POST', `/api/mbox/callback/${id}`, { body: '{}' })).status).toBe(404)
  },
)

it('GET /api/health is 200 if the service was started without a database', async () => {
  const without = await startApp(null)
  expect((await without.call('GET', '/api/health')).json).toEqual({ status: 'ok', database: 'none' })
})

it.each(['/api/line/1', '/api/Line/1', '/api/tracking', '/api/mbox/callback/x'])(
  'without a database POST %s answers 503 with Retry-After',
  async (path) => {
    const without = await startApp(null)
    const answer = await without.call('POST', path, { body: '{"events":[]}' })
    expect(answer.status).toBe(503)
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
  },
)
