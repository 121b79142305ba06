/** CONTRACT: with REDIS_URL the rate limit is shared by all instances, on a real Redis. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Secret } from '../src/secret.ts'
import { freePort } from '../tools/prove/service.ts'
import { eventually } from './support/process.ts'
import { type Service, startAppForTest } from './support/service.ts'

const isInstalled = spawnSync('redis-server', ['--version']).status === 0
if (!isInstalled)
  console.warn(
    '\n!!! redis-server is not installed: the shared rate limit is NOT tested (apt-get install redis-server)\n',
  )

describe.runIf(isInstalled)('two instances with one Redis', () => {
  let redis: ChildProcess
  let port: number

  const startRedis = () => {
    redis = spawn(
      'redis-server',
      ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'],
      { stdio: 'ignore' },
    )
  }
  const instance = (max: number, spareSigned = false, log: string[] = []) =>
    startAppForTest(null, {
      log: { write: (line: string) => log.push(JSON.parse(line).msg) },
      config: {
        logLevel: 'info',
        rateLimit: { max, windowMs: 60_000, spareSigned },
        redisUrl: new Secret(`redis://127.0.0.1:${port}`),
        trustProxy: ['loopback'],
      },
    })
  const from = (service: Service, address: string) =>
    service.call('GET', '/api', { headers: { 'x-forwarded-for': address } })

  beforeAll(async () => {
    port = await freePort()
    startRedis()
  })
  afterAll(() => {
    redis.kill('SIGKILL')
  })

  it('count together', async () => {
    const [one, two] = [await instance(3), await instance(3)]
    await eventually(
      () => from(one, '192.0.2.99'),
      ({ headers }) => headers.get('ratelimit-remaining') === '2',
    )
    await eventually(
      () => from(two, '192.0.2.98'),
      ({ headers }) => headers.get('ratelimit-remaining') === '2',
    )
    const statuses = []
    for (const service of [one, two, one, two, one]) statuses.push((await from(service, '192.0.2.1')).status)
    expect(statuses).toEqual([200, 200, 200, 429, 429])
  })

  it('let requests through while Redis is away, and count again when it is back', async () => {
    const service = await instance(2)
    await eventually(
      () => from(service, '192.0.2.97'),
      ({ headers }) => headers.get('ratelimit-remaining') === '1',
    )
    redis.kill('SIGKILL')
    for (let i = 0; i < 5; i += 1) expect((await from(service, '192.0.2.2')).status).toBe(200)
    startRedis()
    await eventually(
      () => from(service, '192.0.2.96'),
      ({ headers }) => headers.get('ratelimit-remaining') === '1',
    )
    const statuses = []
    for (let i = 0; i < 3; i += 1) statuses.push((await from(service, '192.0.2.3')).status)
    expect(statuses).toEqual([200, 200, 429])
  })

  const AWAY = 'Redis is away: requests are not limited meanwhile'
  const BACK = 'Redis is back: requests are limited again'
  const outages = (log: string[]) => log.filter((line) => line.startsWith('Redis is'))

  it('let requests through while Redis hangs, say so once, and hold nobody to what it was asked then', async () => {
    const log: string[] = []
    const service = await instance(50, false, log)
    await eventually(
      () => from(service, '192.0.2.95'),
      ({ headers }) => headers.get('ratelimit-remaining') !== '50',
    )
    log.length = 0
    redis.kill('SIGSTOP')
    await Promise.all(Array.from({ length: 20 }, () => from(service, '192.0.2.4')))
    const startedAt = performance.now()
    for (let i = 0; i < 100; i += 1) expect((await from(service, '192.0.2.4')).status).toBe(200)
    // Nobody waits for a Redis that is known to be away.
    expect(performance.now() - startedAt).toBeLessThan(20 * 250)
    expect(outages(log)).toEqual([AWAY])
    redis.kill('SIGCONT')
    await eventually(
      () => from(service, '192.0.2.94'),
      ({ headers }) => headers.get('ratelimit-remaining') === '49',
    )
    expect(outages(log)).toEqual([AWAY, BACK])
    expect((await from(service, '192.0.2.4')).status).toBe(200)
  })

  it('let requests through while Redis refuses to count, and say so once', async () => {
    const log: string[] = []
    const service = await instance(2, false, log)
    await eventually(
      () => from(service, '192.0.2.93'),
      ({ headers }) => headers.get('ratelimit-remaining') === '1',
    )
    log.length = 0
    const admin = new Redis(port, '127.0.0.1')
    await admin.config('SET', 'maxmemory', '1')
    for (let i = 0; i < 5; i += 1) expect((await from(service, '192.0.2.5')).status).toBe(200)
    await admin.config('SET', 'maxmemory', '0')
    admin.disconnect()
    const statuses = []
    for (let i = 0; i < 3; i += 1) statuses.push((await from(service, '192.0.2.5')).status)
    expect(statuses).toEqual([200, 200, 429])
    expect(outages(log)).toEqual([AWAY, BACK])
  })
})
