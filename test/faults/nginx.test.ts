/** deploy/nginx.conf in front of two instances. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { loadMembers } from '../support/load.ts'
import { becomesWell } from '../support/process.ts'
import { setUpService, signedDelivery } from '../support/service.ts'

const hasNginx = spawnSync('nginx', ['-v']).status === 0
if (!hasNginx) console.warn('\n!!! nginx is not installed: deploy/nginx.conf is NOT tested\n')

describe.runIf(hasNginx)('nginx with deploy/nginx.conf', async () => {
  const { database, service, tenant } = await setUpService()
  /** Answers as an instance whose queue is full, and cuts a stream off. */
  const full = createServer(({ url: path }, response) => {
    if (path === '/cut') response.write('a line\n', () => response.destroy())
    else response.writeHead(503).end()
  })
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-nginx-'))
  let url = ''
  let stop = () => {}

  beforeAll(async () => {
    const fullPort = await listen(full)
    const port = await freePort()
    const config = readFileSync(new URL('../../deploy/nginx.conf', import.meta.url), 'utf8')
      .replace('app-1:3000', `127.0.0.1:${fullPort}`)
      .replace('app-2:3000', new URL(service.url).host)
      .replace('listen 80;', `listen 127.0.0.1:${port};`)
      .replace(
        'http {',
        `http { access_log off; ${TEMPORARY.map((name) => `${name}_temp_path ${name};`).join(' ')}`,
      )
    writeFileSync(join(directory, 'nginx.conf'), `pid nginx.pid; user root; ${config}`)
    const options = ['-p', directory, '-c', 'nginx.conf', '-e', 'error.log']
    expect(spawnSync('nginx', ['-t', ...options], { encoding: 'utf8' })).toMatchObject({ status: 0 })
    const nginx = spawn('nginx', [...options, '-g', 'daemon off;'], { stdio: 'inherit' })
    stop = () => nginx.kill('SIGTERM')
    url = `http://127.0.0.1:${port}`
    await becomesWell(url)
  })
  afterAll(() => {
    stop()
    full.close()
    rmSync(directory, { recursive: true, force: true })
  })

  it('sends a delivery to the other instance after a 503', async () => {
    for (let i = 0; i < 4; i += 1) {
      const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
      expect((await fetch(url + path, init)).status).toBe(200)
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

const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

function listen(server: ReturnType<typeof createServer>): Promise<number> {
  return new Promise((resolve) =>
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)),
  )
}
