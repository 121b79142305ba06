/** deploy/nginx.conf in front of two instances. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { beforeAll, describe, expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { loadMembers } from '../support/load.ts'
import { canRunNginx, startNginx } from '../support/nginx.ts'
import { becomesWell } from '../support/process.ts'
import { sendDelivery, setUpService, signedDelivery } from '../support/service.ts'

describe.runIf(canRunNginx('nginx.conf'))('nginx with deploy/nginx.conf', async () => {
  const { database, service, tenant } = await setUpService()
  let full: Server
  let url = ''
  beforeAll(async () => {
    // Answers as an instance whose queue is full, and cuts a stream off.
    full = createServer(({ url: path }, response) => {
      if (path === '/cut') response.write('a line\n', () => response.destroy())
      else response.writeHead(503).end()
    }).listen(0, '127.0.0.1')
    await once(full, 'listening')
    const { port } = full.address() as AddressInfo
    const nginx = await startNginx('nginx.conf', {
      ...{ 'app-1:3000': `127.0.0.1:${port}`, 'app-2:3000': new URL(service.url).host },
    })
    url = nginx.url
    await becomesWell(url)
    return () => {
      nginx.stop()
      full.close()
    }
  })

  it('sends a delivery to the other instance after a 503', async () => {
    for (let i = 0; i < 4; i += 1) {
      expect((await sendDelivery(url, tenant, [lineEvent('follow', randomUserId())])).status).toBe(200)
    }
  })

  it('keeps the path of a tracking call, and sends it to the other instance after a 503', async () => {
    const body = JSON.stringify({ writeKey: tenant.trackingKey, anonymousId: 'a-1' })
    for (let i = 0; i < 4; i += 1) {
      const answer = await fetch(`${url}/api/tracking/v1/p`, { method: 'POST', body })
      expect(await answer.json()).toMatchObject({ accepted: 1 })
    }
  })

  it('keeps a slow sender away from the service until its body is complete', async () => {
    const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
    const body = String(init.body)
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname)
    const head = [
      `POST ${path} HTTP/1.1`,
      'host: x',
      'connection: close',
      `content-length: ${Buffer.byteLength(body)}`,
      ...Object.entries(init.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    ].join('\r\n')
    const seen: Array<string | undefined> = []
    for (const server of [service.app.server, full]) {
      server.on('request', (request: IncomingMessage) => seen.push(request.url))
    }
    socket.write(`${head}\r\n\r\n${body.slice(0, -1)}`)
    // nginx has read the first part by the time it answers a later request.
    await becomesWell(url)
    expect(seen).not.toContain(path)
    socket.write(body.slice(-1))
    let answer = ''
    for await (const chunk of socket) answer += chunk
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
    expect(seen).toContain(path)
  })

  it('passes on a stream of all members', async () => {
    await loadMembers(database, tenant, 5_000)
    const headers = { ...tenant.headers, accept: 'application/x-ndjson' }
    const lines = async () => (await (await fetch(`${url}/api/audience`, { headers })).text()).split('\n')
    await expect.poll(async () => (await lines()).length, { timeout: 30_000 }).toBeGreaterThan(5_000)
  })

  it('does not let a stream that was cut off look complete', async () => {
    const read = () =>
      fetch(`${url}/cut`)
        .then((answer) => answer.text())
        .catch(({ message }: Error) => message)
    // The instances take turns, and the other one has no such route.
    expect(await Promise.all([read(), read()])).toContain('terminated')
  })
})
