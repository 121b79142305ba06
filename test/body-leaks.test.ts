/** What a body holds is released, whenever the client disconnects. */
import net from 'node:net'
import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { BodyBudget } from '../src/http/body-budget.ts'
import { createServer } from '../src/http/server.ts'

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
  const { port } = app.server.address() as net.AddressInfo
  const socket = net.connect(port, '127.0.0.1', () => socket.write(post(path).repeat(count)))
  socket.on('error', () => undefined)
  await sleep(50)
  socket.resetAndDestroy()
  await sleep(400)
  await app.close()
  return { held: budget.bytes, observed }
}

test('a client that disconnects during a hook leaves no held body', async () => {
  expect(await disconnectAfter('/slow-hook', 1)).toEqual({ held: 0, observed: 1 })
})

test('a client that disconnects with pipelined requests leaves no held body, and each is observed', async () => {
  expect(await disconnectAfter('/slow-handler', REQUESTS)).toEqual({ held: 0, observed: REQUESTS })
})
