/** A shutdown waits for accepted requests, but not for connections without a request. */
import { once } from 'node:events'
import { expect, it } from 'vitest'
import { spawnService } from '../support/process.ts'
import { openSocket } from '../support/raw.ts'
import { startApp } from '../support/service.ts'

const REQUEST = 'GET /api HTTP/1.1\r\nhost: x\r\n\r\n'
/** The shutdown takes 1.6 s, of which 1 s is for load balancers. Connections were cut after 7.5 s. */
const STOP_MAX_MS = 5_000

it('exits soon after SIGTERM with idle connections, ones that never sent a request, and ones with incomplete headers', async () => {
  const service = await spawnService({ DATABASE_URL: 'none' })
  const used = await openSocket(service.url, REQUEST)
  expect(String(await once(used, 'data'))).toContain('200 OK')
  const others = [
    await openSocket(service.url, ''),
    await openSocket(service.url, 'GET /api HTTP/1.1\r\nhost: x\r\n'),
  ]
  const closed = [used, ...others].map((socket) => once(socket.resume(), 'close'))
  const signalledAtMs = performance.now()
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - signalledAtMs).toBeLessThan(STOP_MAX_MS)
  await Promise.all(closed)
})

it('handles the first request of a connection that was opened just before the shutdown, and closes the connection', async () => {
  const { app, url } = await startApp(null)
  const accepted = once(app.server, 'connection')
  const socket = await openSocket(url, '')
  await accepted
  const closing = app.close()
  socket.write(REQUEST)
  const response = String(await once(socket, 'data'))
  expect(response).toContain('200 OK')
  expect(response.toLowerCase()).toContain('connection: close')
  await closing
})
