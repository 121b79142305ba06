/** `oa-audience health`, which container platforms and service managers run. */
import type { RequestListener } from 'node:http'
import { expect, it } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { runCommand } from '../support/command.ts'
import { serveForTest } from '../support/http-server.ts'
import { setUpService } from '../support/service.ts'

/** Returns the port. */
const serve = async (listener: RequestListener) => new URL(await serveForTest(listener)).port

it('exits with 0 if the service can work, and says with which database', async () => {
  const { service } = await setUpService()
  const { port } = new URL(service.url)
  const { status, stdout } = await runCommand(['health', '--json'], { PORT: port })
  expect(status).toBe(0)
  expect(JSON.parse(stdout)).toEqual({ url: `http://127.0.0.1:${port}`, status: 'ok', database: 'up' })
})

it('exits with 1 if the service says that it cannot work, and with --wait exits with 0 once it can', async () => {
  const statuses = [503, 503, 200]
  const PORT = await serve((_, response) => {
    const status = statuses.shift() ?? 500
    const health = { status: status === 200 ? 'ok' : 'unavailable', database: 'down' }
    response.writeHead(status).end(JSON.stringify(health))
  })
  const refused = await runCommand(['health'], { PORT })
  expect(refused).toMatchObject({ status: 1, stdout: expect.stringContaining('unavailable') })
  const waited = await runCommand(['health', '--wait', '60'], { PORT })
  expect(waited).toMatchObject({ status: 0, stdout: expect.stringContaining('ok') })
  expect(statuses).toEqual([])
})

it('exits with 1 if nothing listens on PORT', async () => {
  const silent = await runCommand(['health'], { PORT: String(await freePort()) })
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
  const PORT = await serve((_, response) => void response.end(bodies[0]))
  for (; bodies.length > 0; bodies.shift()) {
    const { status, stdout } = await runCommand(['health', '--json'], { PORT })
    expect([status, JSON.parse(stdout)], bodies[0]).toEqual([
      1,
      { url: `http://127.0.0.1:${PORT}`, status: 'is another program', database: 'unknown' },
    ])
  }
})

it('stops reading a response that is longer than any of the service', async () => {
  let sentBytes = 0
  const PORT = await serve((_, response) => {
    const chunk = Buffer.alloc(64 * 1024, ' ')
    const send = () => {
      while (!response.destroyed && response.write(chunk)) sentBytes += chunk.length
    }
    response.on('drain', send)
    send()
  })
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
