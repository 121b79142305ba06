/** More requests than the service can serve: it refuses some, serves others and recovers. */
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { residentMiB, setUpProcess } from '../support/process.ts'
import { setUpService, signedDelivery } from '../support/service.ts'

it('refuses with 503 and Retry-After what would wait too long, with bounded memory, and recovers', async () => {
  const { tenant, service } = await setUpProcess()
  const post = ({ path, init }: ReturnType<typeof signedDelivery>) => fetch(service.url + path, init)
  const large = Array.from({ length: 12 }, () =>
    signedDelivery(
      tenant,
      Array.from({ length: 2_500 }, () => lineEvent('message', randomUserId())),
    ),
  )
  const statuses = new Set<number>()
  const sender = async (no: number) => {
    for (let i = 0; i < 4; i += 1) {
      const answer = await post(large[(no + i) % large.length] as (typeof large)[number])
      await answer.arrayBuffer()
      statuses.add(answer.status)
      if (answer.status === 503) expect(answer.headers.get('retry-after')).not.toBeNull()
    }
  }
  const memoryBefore = residentMiB(service)
  const floodMs = await timeOf(() => Promise.all(Array.from({ length: 60 }, (_, no) => sender(no))))
  expect([...statuses].sort()).toEqual([200, 503])
  expect(residentMiB(service) - memoryBefore).toBeLessThan(700)

  // Nothing waits any more: one delivery takes 10 ms, the flood of 240 took 7 s.
  const afterMs = await timeOf(async () => {
    expect((await post(signedDelivery(tenant, [lineEvent('follow', 'Uafter')]))).status).toBe(200)
  })
  expect(afterMs).toBeLessThan(floodMs / 7)
})

it('cuts off slow headers and slow bodies, and serves others meanwhile, also beside silent sockets', async () => {
  const { service } = await setUpService()
  const port = Number(new URL(service.url).port)
  const ended: string[] = []
  const outcomes: Array<Promise<string>> = []
  const open = (start: string) => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    if (start !== '') socket.write(start)
    const outcome = text(socket).catch(() => '')
    outcomes.push(outcome)
    void outcome.then((sent) => ended.push(sent))
    onTestFinished(() => void socket.destroy())
    return socket
  }
  for (let i = 0; i < 150; i += 1) {
    open('GET /api HTTP/1.1\r\nhost: x\r\nx-slow: ')
    open('POST /api/line/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{')
  }
  // A proxy may first use a connection minutes later.
  const silent = Array.from({ length: 150 }, () => connect(port, '127.0.0.1'))
  onTestFinished(() => {
    for (const socket of silent) socket.destroy()
  })
  // Its body of 1,000 bytes would take 500 s.
  const drip = open('POST /api/tracking HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n')
  const dripping = setInterval(() => drip.write('x'), 500)
  onTestFinished(() => clearInterval(dripping))

  for (let i = 0; i < 20; i += 1) expect((await service.call('GET', '/api')).status).toBe(200)
  expect(ended).toEqual([])
  const texts = await Promise.all(outcomes)
  for (const text of texts.filter((text) => text !== ''))
    expect(text).toMatch(/^HTTP\/1.1 408 [\s\S]+no-store[\s\S]+nosniff/)
  expect(silent.filter(({ readyState }) => readyState !== 'open')).toEqual([])
})

async function timeOf(work: () => Promise<unknown>): Promise<number> {
  const startedAtMs = performance.now()
  await work()
  return performance.now() - startedAtMs
}
