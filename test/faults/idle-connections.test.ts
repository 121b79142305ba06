/**
 * Balancers keep idle connections for up to 600 s, so the service keeps them longer. Anybody can open connections and send no request:
 * beyond a limit, those that are idle for longest are closed.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { fastClock } from '../support/fast-clock.ts'
import { spawnService } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { service, tenant } = await setUpService()

/** Half of an instance's. */
const IDLE_OF_ADDRESS = 2_048
/** Its connection is then kept for 620 s. */
const REQUEST = 'GET /api HTTP/1.1\r\nhost: x\r\n\r\n'
const SOON_MS = 20_000

async function open(
  text: string,
  localAddress = '127.0.0.1',
  { url } = service as { url: string },
): Promise<Socket> {
  const socket = connect({ port: Number(new URL(url).port), host: '127.0.0.1', localAddress })
  socket.on('error', () => undefined).resume()
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

it.each([
  ['since a request', REQUEST],
  ['and sent nothing', ''],
])(
  'closes the oldest connections of an address that has too many idle ones %s, and accepts new ones',
  async (_, text) => {
    const other = await open(text, '127.0.0.2')
    const strangers: Socket[] = []
    for (let no = 0; no < IDLE_OF_ADDRESS + 10; no += 1) strangers.push(await open(text))
    await expect.poll(() => strangers.filter(({ closed }) => closed).length, { timeout: SOON_MS }).toBe(10)
    expect(strangers.slice(0, 100).filter(({ closed }) => closed).length).toBe(10)
    const delivered = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    expect(delivered.json).toEqual({ accepted: 1, duplicates: 0 })
    expect(other.closed).toBe(false)
  },
)

it('limits the time without traffic during the first request as during others', async () => {
  const timeouts: unknown[] = []
  service.app.server.on('request', ({ socket }) => timeouts.push(socket.timeout))
  const socket = await open(REQUEST)
  socket.once('data', () => socket.write(REQUEST))
  await expect.poll(() => timeouts).toEqual([120_000, 120_000])
})

/** 600 s are 30 s. */
const SPEED = 20
const CONNECTIONS = 1_000
const BALANCER_IDLE_MS = 600_000
const clock = fastClock(SPEED, 'the time after which idle connections are closed')
const sleepFast = (ms: number) => sleep(ms / SPEED)

describe.runIf(clock !== null)('with a fast clock', async () => {
  const start = () => spawnService({ DATABASE_URL: 'none', RATE_LIMIT_MAX: '0', ...clock })

  it('resets no request of 1,000 connections that were used or opened up to 600 s before, and closes them after 620 s', async () => {
    const fast = await start()
    const openedAtMs = performance.now()
    const idle = [await open(REQUEST, '127.0.0.1', fast), await open('', '127.0.0.1', fast)]
    const closed = idle.map(async (socket) => {
      await once(socket, 'close')
      return (performance.now() - openedAtMs) * SPEED
    })
    const outcomes = await Promise.all(
      Array.from({ length: CONNECTIONS }, async (_, no) => {
        await sleep(no)
        const socket = await open(no % 2 === 0 ? REQUEST : '', '127.0.0.1', fast)
        await sleepFast((no / CONNECTIONS) * BALANCER_IDLE_MS)
        const end = once(socket, 'close').then(() => 'closed')
        if (socket.closed) return 'closed'
        socket.write(REQUEST)
        const response = once(socket, 'data').then(([chunk]) => String(chunk).slice(0, 15))
        return Promise.race([response, end])
      }),
    )
    expect(new Set(outcomes)).toEqual(new Set(['HTTP/1.1 200 OK']))
    for (const idleMs of await Promise.all(closed)) {
      expect(idleMs).toBeGreaterThan(BALANCER_IDLE_MS)
      expect(idleMs).toBeLessThan(BALANCER_IDLE_MS * 1.2)
    }
  })

  it('closes a connection whose headers do not arrive within 10 s, also if it was idle before', async () => {
    const fast = await start()
    const socket = await open('', '127.0.0.1', fast)
    await sleepFast(60_000)
    const startedAtMs = performance.now()
    socket.write('GET /api HTTP/1.1\r\n')
    await once(socket, 'close')
    expect((performance.now() - startedAtMs) * SPEED).toBeLessThan(30_000)
  })
})
