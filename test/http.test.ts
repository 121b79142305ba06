/** CONTRACT: what every request meets, whatever it asks for. */
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { signLine } from '../src/intake/line/signature.ts'
import { Secret } from '../src/secret.ts'
import { lineBody, lineEvent } from '../tools/simulator/events.ts'
import { eventually } from './support/process.ts'
import { type Service, setUpFile, startAppForTest, startObserved } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

/** Writes bytes to the service's port and returns all that comes back until it closes. */
function raw(target: Service, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(target.url).port), '127.0.0.1', () => socket.write(request))
    let answer = ''
    socket.on('data', (chunk) => {
      answer += chunk
    })
    socket.on('close', () => resolve(answer))
    socket.on('error', reject)
  })
}

describe('errors', () => {
  it('have one shape, and a request id of their own', async () => {
    const first = await service.call('GET', '/nowhere')
    const second = await service.call('GET', '/nowhere')
    expect(first.json).toEqual({
      statusCode: 404,
      error: 'Not Found',
      message: 'No such route',
      requestId: expect.stringMatching(/^[0-9a-f-]{36}$/),
    })
    expect(second.json.requestId).not.toBe(first.json.requestId)
  })

  it('keep that shape for bad percent-encoding, unknown methods and broken requests', async () => {
    expect((await service.call('GET', '/api/audience/%zz')).json).toMatchObject({
      statusCode: 400,
      requestId: expect.any(String),
    })
    expect((await service.call('PUT', '/api/audience/%e0%a4%a')).json).toMatchObject({ statusCode: 400 })
    expect((await service.call('PROPFIND', '/api/audience')).json).toMatchObject({ statusCode: 404 })
    const broken = await raw(service, 'GET /api HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n')
    expect(broken).toMatch(/^HTTP\/1.1 400 Bad Request/)
    expect(JSON.parse(broken.split('\r\n\r\n')[1] as string)).toMatchObject({
      statusCode: 400,
      requestId: expect.any(String),
    })
    const long = await raw(service, `GET /api HTTP/1.1\r\nHost: x\r\nx-long: ${'x'.repeat(20_000)}\r\n\r\n`)
    expect(long).toMatch(/^HTTP\/1.1 431 /)
  })

  it('of a database that is away are told to the log in a line without a stack: there are thousands of them', async () => {
    const lines: string[] = []
    const log = { write: (line: string) => void lines.push(line) }
    const away = await startAppForTest(null, { log, config: { logLevel: 'info' } })
    expect((await away.deliver(tenant, [lineEvent('follow', 'U1')])).status).toBe(503)
    const line = lines.find((text) => text.includes('request failed')) ?? ''
    expect(JSON.parse(line)).toMatchObject({ level: 40, code: 'unavailable' })
    expect(line).not.toContain('stack')
  })

  it('keep it for requests without a host or with an expectation that nobody meets', async () => {
    for (const [request, status] of [
      ['GET /api HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
      ['GET /api HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n', 417],
    ] as const) {
      const answer = await raw(service, request)
      expect(answer.startsWith(`HTTP/1.1 ${status} `), answer).toBe(true)
      expect(JSON.parse(answer.split('\r\n\r\n')[1] as string)).toMatchObject({
        statusCode: status,
        requestId: expect.any(String),
      })
    }
  })

  it('have a line each, which is like all other lines, whatever a proxy passes on as an address', async () => {
    const lines: string[] = []
    const seen = await startAppForTest(null, {
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
      time: expect.closeTo(other.time, -4),
      requestId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      method: 'GET',
      route: '/api',
      status: 200,
      ms: expect.any(Number),
      ip: '"level": 60',
      msg: 'request',
    })
  })

  it('of requests that no route can be found for are in the log and in the metrics, under their requestId', async () => {
    const { seen, noted, counted } = await startObserved(null)
    for (const [request, status] of [
      ['GET /api/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 400],
      ['GARBAGE\r\n\r\n', 400],
      ['GET /api HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n', 417],
    ] as const) {
      const { requestId } = JSON.parse((await raw(seen, request)).split('\r\n\r\n')[1] as string)
      const told = noted().filter((line) => line.requestId === requestId)
      expect(told).toEqual([expect.objectContaining({ msg: 'request', route: 'unknown', status })])
    }
    const counts = await counted()
    expect(counts).toContain('oa_audience_requests_total{method="any",route="unknown",status="400"} 2')
    expect(counts).toContain('oa_audience_requests_total{method="any",route="unknown",status="417"} 1')
  })

  it('whose sender hangs up before the answer are in the log and in the metrics, too', async () => {
    const { seen, noted, counted } = await startObserved(database)
    await database.transaction(async (transaction) => {
      await transaction.query('lock table audience_member in access exclusive mode')
      const left = new AbortController()
      const answer = fetch(`${seen.url}/api/audience`, { headers: tenant.headers, signal: left.signal })
      setTimeout(() => left.abort(), 200)
      await expect(answer).rejects.toThrow()
      const told = await eventually(
        async () => noted().filter(({ msg }) => msg === 'request'),
        (lines) => lines.length > 0,
      )
      expect(told).toMatchObject([{ route: '/api/audience', status: 499, ip: '127.0.0.1' }])
    })
    expect(await counted()).toContain(
      'oa_audience_requests_total{method="GET",route="/api/audience",status="499"} 1',
    )
  })

  it('whose body breaks off is there once, under the requestId that was answered', async () => {
    const { seen, noted, counted } = await startObserved(database)
    const request = `POST /api/line/${tenant.accountId} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`
    const { requestId } = JSON.parse((await raw(seen, request)).split('\r\n\r\n')[1] as string)
    const told = await eventually(
      async () => noted().filter(({ msg }) => msg === 'request'),
      (lines) => lines.length > 0,
    )
    expect(told).toMatchObject([{ requestId, route: '/api/line/:id', status: 400, ip: '127.0.0.1' }])
    expect((await counted()).match(/status="\d+"} 1$/gm)).toHaveLength(1)
  })

  it('to an expectation that nobody meets wait for the answer before them', async () => {
    const answer = await raw(
      service,
      'GET /api HTTP/1.1\r\nHost: x\r\n\r\nGET /api HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n',
    )
    expect(answer).toMatch(/^HTTP\/1.1 200 OK[\s\S]+HTTP\/1.1 417 Expectation Failed/)
  })

  it('do not take the place of the answer to a good request before them on the same connection', async () => {
    const body = lineBody(tenant.botUserId, [lineEvent('follow', 'Upipelined')])
    const signature = signLine(body, new Secret(tenant.channelSecret))
    const good = `POST /api/line/${tenant.accountId} HTTP/1.1\r\nHost: x\r\nx-line-signature: ${signature}\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    const answer = await raw(service, `${good}GARBAGE\r\n\r\n`)
    expect(answer).toMatch(/^HTTP\/1.1 200 OK[\s\S]+"accepted":1[\s\S]+HTTP\/1.1 400 Bad Request/)
  })

  it('name every fault of the input', async () => {
    await service.deliver(tenant, [
      { type: 'follow', timestamp: 1, source: { type: 'user', userId: 'Udetails' } },
    ])
    const member = await service.member(tenant, 'Udetails')
    const answer = await service.call('PUT', `/api/audience/${member?.id}`, {
      headers: { ...tenant.headers, 'content-type': 'application/json' },
      body: JSON.stringify({ externalId: 7, tags: ['x'.repeat(65)], colour: 'red' }),
    })
    expect(answer.status).toBe(400)
    expect(answer.json.details.map(({ path }: { path: string }) => path).sort()).toEqual(
      expect.arrayContaining(['colour', 'externalId', 'tags/0']),
    )
  })
})

describe('bodies', () => {
  it('are limited to 1 MiB on every route: 413', async () => {
    const body = 'x'.repeat(1024 * 1024 + 1)
    for (const path of [
      `/api/line/${tenant.accountId}`,
      '/api/tracking',
      `/api/mbox/callback/${tenant.oaHash}`,
    ]) {
      expect((await service.call('POST', path, { body })).json).toMatchObject({
        statusCode: 413,
        error: 'Payload Too Large',
      })
    }
    expect((await service.call('PUT', '/api/audience/1', { body, headers: tenant.headers })).status).toBe(413)
  })

  it('are refused when compressed: 415', async () => {
    const init = { body: 'x', headers: { 'content-encoding': 'gzip', ...tenant.headers } }
    for (const path of [
      `/api/line/${tenant.accountId}`,
      '/api/tracking',
      `/api/mbox/callback/${tenant.oaHash}`,
    ]) {
      expect((await service.call('POST', path, init)).status).toBe(415)
    }
    expect((await service.call('POST', '/api/line-oa/verify', init)).status).toBe(415)
  })
})

describe('methods', () => {
  it('HEAD is not offered, OPTIONS only on /api/tracking', async () => {
    for (const path of ['/api', '/api/health', '/api/audience']) {
      expect((await service.call('HEAD', path)).status, path).toBe(404)
      expect((await service.call('OPTIONS', path)).status, path).toBe(404)
    }
    expect((await service.call('OPTIONS', '/api/tracking')).status).toBe(204)
  })
})

describe('ids in paths', () => {
  it.each(['abc', '1e3', '+1', '-1', '01', '9223372036854775808', '1'.repeat(3000), '%00', '1%202', '٣'])(
    '%.30s names nothing: 404',
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

  it('are int64 to the last digit', async () => {
    await database.query(
      `insert into audience_member (id, channel_oa_id, organization_id, user_id) values (9223372036854775807, $1, $2, 'Ulast')`,
      [tenant.accountId, tenant.organizationId],
    )
    expect((await service.member(tenant, 'Ulast'))?.id).toBe('9223372036854775807')
    const updated = await service.call('PUT', '/api/audience/9223372036854775807', {
      headers: tenant.headers,
      body: '{}',
    })
    expect(updated.status).toBe(415)
    const headers = { ...tenant.headers, 'content-type': 'application/json; charset=utf-8' }
    expect(
      (await service.call('PUT', '/api/audience/9223372036854775807', { headers, body: '{}' })).status,
    ).toBe(200)
  })
})

describe('GET /api and GET /api/health', () => {
  it('name the service and its version', async () => {
    expect((await service.call('GET', '/api')).json).toEqual({
      name: 'oa-audience',
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    })
  })

  it('health is 200 with the database up, and with none where none was wanted', async () => {
    expect((await service.call('GET', '/api/health')).json).toEqual({ status: 'ok', database: 'up' })
    const without = await startAppForTest(null)
    expect((await without.call('GET', '/api/health')).json).toEqual({ status: 'ok', database: 'none' })
  })

  it('health is 503 while the service shuts down', async () => {
    const closing = await startAppForTest(database, { isClosing: () => true })
    expect((await closing.call('GET', '/api/health')).json).toMatchObject({
      statusCode: 503,
      error: 'Service Unavailable',
    })
  })
})

describe('without a database', () => {
  it('the public routes that would keep something answer 503 with Retry-After', async () => {
    const without = await startAppForTest(null)
    for (const path of ['/api/line/1', '/api/Line/1', '/api/tracking', '/api/mbox/callback/x']) {
      const answer = await without.call('POST', path, { body: '{"events":[]}' })
      expect(answer.status, path).toBe(503)
      expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
    }
  })
})

it('a chunked body that breaks in the middle is answered 400 at once', async () => {
  const text = await raw(
    service,
    `POST /api/line/${tenant.accountId} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"ev"\r\nnonsense\r\n`,
  )
  expect(text).toContain('HTTP/1.1 400 Bad Request')
})

describe('the rate limit', () => {
  const limited = (max: number, rest = {}) =>
    startAppForTest(database, {
      config: { rateLimit: { max, windowMs: 60_000, spareSigned: false }, ...rest },
    })

  it('counts every route together, unknown paths and refused logins too', async () => {
    const app = await limited(4)
    const statuses = []
    for (const path of [
      '/nowhere',
      '/api/audience',
      '/api',
      '/api/health',
      '/api',
      '/nowhere',
      '/api/audience',
    ]) {
      statuses.push((await app.call('GET', path)).status)
    }
    expect(statuses).toEqual([404, 401, 200, 200, 429, 429, 429])
  })

  it('meets requests without a host', async () => {
    const app = await limited(1)
    const request = 'GET /api HTTP/1.1\r\nConnection: close\r\n\r\n'
    expect(await raw(app, request)).toMatch(/^HTTP\/1.1 400 [\s\S]+ratelimit-remaining: 0/)
    expect(await raw(app, request)).toMatch(/^HTTP\/1.1 429 /)
  })

  it('is exact at the edge of the window', async () => {
    const windowMs = 600
    const app = await limited(3, { rateLimit: { max: 3, windowMs, spareSigned: false } })
    const startedAt = Date.now()
    for (let round = 0; round < 3; round += 1) {
      const statuses = []
      for (let i = 0; i < 5; i += 1) statuses.push((await app.call('GET', '/api')).status)
      expect(statuses).toEqual([200, 200, 200, 429, 429])
      await new Promise((resolve) =>
        setTimeout(resolve, startedAt + (round + 1) * (windowMs + 60) - Date.now()),
      )
    }
  })

  it('counts addresses that cannot be decoded, too', async () => {
    const app = await limited(2)
    const statuses = []
    for (let i = 0; i < 4; i += 1) statuses.push((await app.call('GET', '/api/%zz')).status)
    expect(statuses).toEqual([400, 400, 429, 429])
  })

  it('answers 429 in the shape of every error, with Retry-After', async () => {
    const app = await limited(1)
    await app.call('GET', '/api')
    const answer = await app.call('GET', '/api')
    expect(answer.json).toMatchObject({
      statusCode: 429,
      error: 'Too Many Requests',
      requestId: expect.any(String),
    })
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
  })

  it('shows its state in the headers of every answer', async () => {
    const app = await limited(3)
    for (const [path, remaining] of [
      ['/api', '2'],
      ['/nowhere', '1'],
      ['/api/audience', '0'],
      ['/api', '0'],
    ] as const) {
      const { headers } = await app.call('GET', path)
      for (const prefix of ['', 'x-']) {
        expect(headers.get(`${prefix}ratelimit-limit`)).toBe('3')
        expect(headers.get(`${prefix}ratelimit-remaining`)).toBe(remaining)
        expect(Number(headers.get(`${prefix}ratelimit-reset`))).toBeGreaterThan(0)
      }
    }
  })

  it('is one for an address, whatever port a proxy adds to it, and one for all that are none', async () => {
    const app = await limited(1, { trustProxy: ['loopback'] })
    for (const [first, second] of [
      ['198.51.100.7:1234', '198.51.100.7:1235'],
      ['[2001:db8::1]:80', '2001:db8::2'],
      ['_hidden', 'unknown'],
    ] as const) {
      const from = (address: string) => app.call('GET', '/api', { headers: { 'x-forwarded-for': address } })
      expect((await from(first)).status, first).toBe(200)
      expect((await from(second)).status, second).toBe(429)
    }
  })

  it('believes X-Forwarded-For only from a trusted proxy, from right to left', async () => {
    const from = (app: Service, address: string) =>
      app.call('GET', '/api', { headers: { 'x-forwarded-for': address } })
    const untrusting = await limited(1)
    expect((await from(untrusting, '198.51.100.1')).status).toBe(200)
    expect((await from(untrusting, '198.51.100.2')).status).toBe(429)

    const trusting = await limited(1, { trustProxy: ['loopback'] })
    expect((await from(trusting, '203.0.113.9, 198.51.100.1')).status).toBe(200)
    expect((await from(trusting, '203.0.113.8, 198.51.100.1')).status).toBe(429)
    expect((await from(trusting, '198.51.100.2')).status).toBe(200)
  })

  it('counts an IPv6 customer by its /64', async () => {
    const app = await limited(1, { trustProxy: ['loopback'] })
    const from = (address: string) => app.call('GET', '/api', { headers: { 'x-forwarded-for': address } })
    expect((await from('2001:db8:1:2::1')).status).toBe(200)
    expect((await from('2001:db8:1:2:ffff::9')).status).toBe(429)
    expect((await from('2001:db8:1:3::1')).status).toBe(200)
  })

  it('gives the count of a signed delivery back, if told so', async () => {
    const app = await limited(2, { rateLimit: { max: 2, windowMs: 60_000, spareSigned: true } })
    for (let i = 0; i < 5; i += 1) expect((await app.deliver(tenant, [])).status).toBe(200)
    for (let i = 0; i < 5; i += 1) expect((await app.deliverRaw(tenant, 'no JSON')).status).toBe(400)
    const forged = () =>
      app.call('POST', `/api/line/${tenant.accountId}`, { body: '{}', headers: { 'x-line-signature': 'x' } })
    expect((await forged()).status).toBe(403)
    expect((await forged()).status).toBe(403)
    expect((await forged()).status).toBe(429)
  })

  it('is off at 0', async () => {
    const app = await limited(0)
    expect((await app.call('GET', '/api')).headers.get('ratelimit-limit')).toBeNull()
  })
})
