/** With REDIS_URL the rate limit is shared by all instances, on a real Redis. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { freePort } from '../../tools/prove/service.ts'
import { spawnService } from '../support/process.ts'
import { type Service, startApp } from '../support/service.ts'

const isInstalled = spawnSync('redis-server', ['--version']).status === 0
if (!isInstalled)
  console.warn(
    '\n!!! redis-server is not installed: the shared rate limit is NOT tested (apt-get install redis-server)\n',
  )

const UNREACHABLE = 'Redis is unreachable: requests are not limited'
const REACHABLE = 'Redis is reachable again: requests are limited'
/** An instance waits this long for an answer of Redis. */
const REDIS_TIMEOUT_MS = 250

describe.runIf(isInstalled)('the rate limit with Redis', () => {
  let redis: ChildProcess
  let port: number
  let lastAddress = 0

  const startRedis = () => {
    const options = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']
    redis = spawn('redis-server', options, { stdio: 'ignore' })
  }
  const newAddress = () => {
    lastAddress += 1
    return `192.0.2.${lastAddress}`
  }
  const callFrom = (service: Service, address: string) =>
    service.call('GET', '/api', { headers: { 'x-forwarded-for': address } })

  /** Resolves when Redis counts the requests of this instance. */
  const becomesCounted = (service: Service) =>
    expect
      .poll(() => callFrom(service, newAddress()))
      .toSatisfy(({ headers }) => headers.get('ratelimit-remaining') !== headers.get('ratelimit-limit'))

  async function startCounted(max: number): Promise<{ service: Service; outages: () => string[] }> {
    const log: string[] = []
    const service = await startApp(null, {
      log: { write: (line: string) => log.push(JSON.parse(line).msg) },
      config: {
        logLevel: 'info',
        rateLimit: { max, windowMs: 3_600_000, spareSigned: false },
        redisUrl: new Secret(`redis://127.0.0.1:${port}`),
        trustProxy: ['loopback'],
      },
    })
    await becomesCounted(service)
    // Redis may have accepted no connections yet when the instance started.
    log.length = 0
    return { service, outages: () => log.filter((line) => line.startsWith('Redis is')) }
  }

  async function statusesFrom(services: Service[], address: string): Promise<number[]> {
    const statuses = []
    for (const service of services) statuses.push((await callFrom(service, address)).status)
    return statuses
  }

  beforeAll(async () => {
    port = await freePort()
    startRedis()
  })
  afterAll(() => {
    redis.kill('SIGKILL')
  })

  it('prints warnings of the Redis client without its password', async () => {
    const admin = new Redis(port, '127.0.0.1').on('error', () => undefined)
    // The client warns that it may not ask whether the server is ready.
    await admin.call('acl', ['setuser', 'limiter', 'on', '>hunter2', '~*', '+@all', '-info'])
    admin.disconnect()
    const env = { DATABASE_URL: 'none', REDIS_URL: `redis://limiter:hunter2@127.0.0.1:${port}` }
    const service = await spawnService(env)
    await expect.poll(() => service.output()).toContain('Skipping the ready check')
    service.child.kill('SIGINT')
    await service.exited
    expect(service.output()).not.toContain('hunter2')
  })

  it('counts the requests to two instances together', async () => {
    const [{ service: one }, { service: two }] = [await startCounted(3), await startCounted(3)]
    expect(await statusesFrom([one, two, one, two, one], newAddress())).toEqual([200, 200, 200, 429, 429])
  })

  it('lets requests through while Redis is down, and limits them afterwards', async () => {
    const { service } = await startCounted(2)
    redis.kill('SIGKILL')
    expect(await statusesFrom(Array(5).fill(service), newAddress())).toEqual(Array(5).fill(200))
    startRedis()
    await becomesCounted(service)
    expect(await statusesFrom(Array(3).fill(service), newAddress())).toEqual([200, 200, 429])
  })

  it('lets requests through while Redis hangs, without a wait for each, counts none of them, and logs the outage once', async () => {
    const { service, outages } = await startCounted(30)
    redis.kill('SIGSTOP')
    const address = newAddress()
    // These discover the outage. Redis already has their commands and may still count them.
    await Promise.all(Array.from({ length: 20 }, () => callFrom(service, address)))
    const startedAtMs = performance.now()
    expect(await statusesFrom(Array(100).fill(service), address)).toEqual(Array(100).fill(200))
    expect(performance.now() - startedAtMs).toBeLessThan((100 * REDIS_TIMEOUT_MS) / 2)
    expect(outages()).toEqual([UNREACHABLE])
    redis.kill('SIGCONT')
    await becomesCounted(service)
    expect((await callFrom(service, address)).status).toBe(200)
    expect(outages()).toEqual([UNREACHABLE, REACHABLE])
  })
})
