/** `oa-audience health`, which container platforms and service managers run. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { runCommand } from './support/command.ts'
import { setUpService } from './support/service.ts'

it('exits with 0 if the service can work, and says with which database', async () => {
  const { service } = await setUpService()
  const { port } = new URL(service.url)
  const { status, stdout } = await runCommand(['health', '--json'], { PORT: port })
  expect(status).toBe(0)
  expect(JSON.parse(stdout)).toEqual({ url: `http://127.0.0.1:${port}`, status: 'ok', database: 'up' })
})

it('exits with 1 if nothing listens on PORT, and if the service says that it cannot work', async () => {
  let isHealthy = false
  const server = createServer((_, response) => {
    response.statusCode = isHealthy ? 200 : 503
    response.end(JSON.stringify({ status: isHealthy ? 'ok' : 'unavailable', database: 'down' }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const PORT = String((server.address() as AddressInfo).port)

  const refused = await runCommand(['health'], { PORT })
  expect(refused.status).toBe(1)
  expect(refused.stdout).toContain('unavailable')

  const waiting = runCommand(['health', '--wait', '60'], { PORT })
  isHealthy = true
  expect((await waiting).status).toBe(0)

  server.close()
  server.closeAllConnections()
  const silent = await runCommand(['health'], { PORT })
  expect(silent).toMatchObject({ status: 1, stdout: expect.stringContaining('does not respond') })
})

it('exits with 1 if another program has the port, and shows nothing of its response', async () => {
  const bodies = [
    '{"name":"other"}',
    '{"status":"fine\\u202e","database":"\\u001b[2J"}',
    'null',
    '"ok"',
    '{"status":[]}',
  ]
  const server = createServer((_, response) => void response.end(bodies[0]))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const PORT = String((server.address() as AddressInfo).port)
  for (; bodies.length > 0; bodies.shift()) {
    const { status, stdout } = await runCommand(['health', '--json'], { PORT })
    expect([status, JSON.parse(stdout)], bodies[0]).toEqual([
      1,
      { url: `http://127.0.0.1:${PORT}`, status: 'is another program', database: 'unknown' },
    ])
  }
})

it('reads no more of a response than the service sends', async () => {
  let sentBytes = 0
  const server = createServer((_, response) => {
    const chunk = Buffer.alloc(64 * 1024, ' ')
    const send = () => {
      while (!response.destroyed && response.write(chunk)) sentBytes += chunk.length
    }
    response.on('drain', send)
    send()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const PORT = String((server.address() as AddressInfo).port)
  const { status } = await runCommand(['health'], { PORT })
  expect(status).toBe(1)
  // The sockets of both sides hold some megabytes.
  expect(sentBytes).toBeLessThan(32 * 1024 * 1024)
})

it('names the variable if the port is unknown', async () => {
  const { status, stderr } = await runCommand(['health'], { PORT: '0' })
  expect(status).toBe(1)
  expect(stderr).toBe('oa-audience: PORT is 0, so the port is unknown. Set PORT as for the service.\n')
})
