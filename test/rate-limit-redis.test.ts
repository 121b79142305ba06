/** CONTRACT: with REDIS_URL the rate limit is shared by all instances, on a real Redis. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort } from '../src/cli/prove-service.ts'
import { Secret } from '../src/secret.ts'
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
  const instance = (max: number, spareSigned = false) =>
    startAppForTest(null, {
      config: {
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
})
