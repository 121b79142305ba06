/** Bodies that are being received have a budget: who holds most for longest is cut off. They hold up nobody, and nothing of them is left. */
import { execFileSync } from 'node:child_process'
import { close, constants, open, openSync } from 'node:fs'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { expect, it, onTestFinished } from 'vitest'
import { BodyBudget, INCOMPLETE_BYTES } from '../../src/http/body-budget.ts'
import { createServer } from '../../src/http/server.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { eventually, temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { service, tenant } = await setUpService()

const BODY_BYTES = 1024 * 1024

/** Opens a connection, sends all of a body but its last byte, and collects what the service answers. */
function holdBody(path: string): { socket: Socket; answer: () => string; isClosed: () => boolean } {
  let answer = ''
  let isClosed = false
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
  socket.on('data', (text) => {
    answer += text
  })
  socket
    .on('error', () => undefined)
    .on('close', () => {
      isClosed = true
    })
  socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-length: ${BODY_BYTES}\r\n\r\n`)
  socket.write(Buffer.alloc(BODY_BYTES - 1, 'x'))
  onTestFinished(() => void socket.destroy())
  return { socket, answer: () => answer, isClosed: () => isClosed }
}

it.each([
  ['the tracking route', '/api/tracking', 16],
  ['LINE route', `/api/line/${tenant.accountId}`, 96],
])(
  'cuts off the bodies of strangers on %s, and closes their connections',
  async (_route, path, budgetMiB) => {
    const held = Array.from({ length: budgetMiB }, () => holdBody(path))
    const cutOff = await eventually(
      async () => held.filter(({ isClosed }) => isClosed()),
      (closed) => closed.length >= budgetMiB / 2,
    )
    for (const { answer } of cutOff) expect(answer() === '' || answer().startsWith('HTTP/1.1 503')).toBe(true)
    const delivered = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    expect(delivered.json).toEqual({ accepted: 1, duplicates: 0 })
    const tracked = await service.track(tenant, [{ type: 'page', userId: 'U1' }])
    expect(tracked.json).toMatchObject({ accepted: 1 })
    // A connection that is closed gives back what it held.
    for (const { socket } of held) socket.destroy()
    for (let no = 0; no < 3; no += 1) {
      const large = JSON.stringify({ text: 'x'.repeat(BODY_BYTES - 100) })
      expect((await service.call('POST', path, { body: large })).status).not.toBe(503)
    }
  },
)

it('refuses a request to an unknown route before it reads the body', async () => {
  const held = holdBody('/unknown')
  await expect.poll(() => held.answer()).toSatisfy((answer) => answer.startsWith('HTTP/1.1 404'))
})

const KIB = 1024
const start = (kib: number) => {
  const cutOff: string[] = []
  const budget = new BodyBudget(kib * KIB)
  const open = (name: string, address = name) => budget.open(address, () => cutOff.push(name))
  return { budget, cutOff, open }
}

it('a budget cuts off the largest body while all are young, and keeps those that are complete', () => {
  const { budget, cutOff, open } = start(400)
  expect(open('complete')?.complete(Buffer.alloc(100 * KIB))).toBe(true)
  open('large')?.grow(150 * KIB)
  open('small')?.grow(20 * KIB)
  expect(open('newcomer')?.grow(100 * KIB)).toBe(true)
  expect(cutOff).toEqual(['large'])
  expect(budget.bytes).toBe((100 + 20 + 100) * KIB + 2 * INCOMPLETE_BYTES)
})

it('a budget cuts off the newcomer itself if it is the largest', () => {
  const { cutOff, open } = start(400)
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) open(name)?.grow(40 * KIB)
  expect(open('newcomer')?.grow(190 * KIB)).toBe(false)
  expect(cutOff).toEqual([])
})

it('a budget leaves half of itself to other addresses', () => {
  const { cutOff, open } = start(400)
  for (const no of [1, 2, 3, 4, 5]) open(`stranger ${no}`, '192.0.2.1')?.grow(80 * KIB)
  expect(cutOff).toEqual(['stranger 1', 'stranger 2', 'stranger 3'])
  expect(open('other')?.grow(100 * KIB)).toBe(true)
  expect(cutOff).toHaveLength(3)
})

/** libuv's, if UV_THREADPOOL_SIZE is not set. */
const SHARED_THREADS = 4

/** Opening a pipe for reading waits for a program that writes to it. */
function occupySharedThreads(): void {
  const pipe = join(temporaryDirectory(), 'pipe')
  execFileSync('mkfifo', [pipe])
  for (let no = 0; no < SHARED_THREADS; no += 1) {
    open(pipe, 'r', (_error, descriptor) => close(descriptor, () => undefined))
  }
  onTestFinished(() => void openSync(pipe, constants.O_RDWR))
}

it('reads compressed tracking events while all shared threads are occupied', async () => {
  const body = gzipSync(
    JSON.stringify({ writeKey: tenant.trackingKey, batch: [{ type: 'page', userId: 'U1' }] }),
  )
  occupySharedThreads()
  const tracked = await service.call('POST', '/api/tracking', {
    body,
    headers: { 'content-encoding': 'gzip' },
  })
  expect(tracked.json).toMatchObject({ accepted: 1 })
})

const REQUESTS = 10
const BODY = 'x'.repeat(1_000)

const post = (path: string) =>
  `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`

async function disconnectAfter(path: string, count: number): Promise<{ held: number; observed: number }> {
  const budget = new BodyBudget(1024 * 1024)
  const app = createServer(
    { logLevel: 'silent', trustProxy: [] },
    new Writable({ write: (_chunk, _encoding, done) => done() }),
  )
  let observed = 0
  app.requestObservers.push(() => {
    observed += 1
  })
  app.addHook('onRequest', async ({ url }) => {
    if (url === '/slow-hook') await sleep(100)
  })
  for (const url of ['/slow-hook', '/slow-handler'])
    app.post(url, { config: { bodies: budget } }, async () => {
      await sleep(100)
      return {}
    })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as AddressInfo
  const socket = connect(port, '127.0.0.1', () => socket.write(post(path).repeat(count)))
  socket.on('error', () => undefined)
  await sleep(50)
  socket.resetAndDestroy()
  await sleep(400)
  await app.close()
  return { held: budget.bytes, observed }
}

it('a client that disconnects with pipelined requests, or during a hook, leaves no held body, and each is observed', async () => {
  expect(await disconnectAfter('/slow-handler', REQUESTS)).toEqual({ held: 0, observed: REQUESTS })
  expect(await disconnectAfter('/slow-hook', 1)).toEqual({ held: 0, observed: 1 })
})
