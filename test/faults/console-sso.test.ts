/** deploy/nginx-console.conf in front of the console, with a stand-in for oauth2-proxy. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { commandActor } from '../../src/operator/actor.ts'
import { freePort } from '../../tools/prove/service.ts'
import { startConsole } from '../support/console.ts'
import { createTestDatabase } from '../support/database.ts'
import { addOperator } from '../support/operations.ts'

const hasNginx = spawnSync('nginx', ['-v']).status === 0
if (!hasNginx) console.warn('\n!!! nginx is not installed: deploy/nginx-console.conf is NOT tested\n')

const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

describe.runIf(hasNginx)('the console behind nginx with auth_request', async () => {
  const { database } = await createTestDatabase()
  const config = { logLevel: 'silent' as const, trustProxy: ['127.0.0.1'], publicUrl: null }
  const { url: consoleUrl } = await startConsole(database, { config, userHeader: 'x-forwarded-email' })
  /** As oauth2-proxy responds with --set-xauthrequest: 202 and the address of a session, or 401. */
  const signIn = createServer(({ url, headers }, response) => {
    if (url === '/oauth2/sign_in') response.end('choose an identity provider')
    else if (headers.cookie === undefined) response.writeHead(401).end()
    else response.writeHead(202, { 'x-auth-request-email': headers.cookie.replace('session=', '') }).end()
  })
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-sso-'))
  let url = ''
  let stop = () => {}

  beforeAll(async () => {
    await new Promise<void>((resolve) => signIn.listen(0, '127.0.0.1', resolve))
    const port = await freePort()
    const text = readFileSync(new URL('../../deploy/nginx-console.conf', import.meta.url), 'utf8')
      .replaceAll('127.0.0.1:4180', `127.0.0.1:${(signIn.address() as AddressInfo).port}`)
      .replace('127.0.0.1:3001', new URL(consoleUrl).host)
      .replace('listen 80;', `listen 127.0.0.1:${port};`)
      .replace(
        'http {',
        `http { access_log off; ${TEMPORARY.map((name) => `${name}_temp_path ${name};`).join(' ')}`,
      )
    writeFileSync(join(directory, 'nginx.conf'), `pid nginx.pid; user root; ${text}`)
    const options = ['-p', directory, '-c', 'nginx.conf', '-e', 'error.log']
    expect(spawnSync('nginx', ['-t', ...options], { encoding: 'utf8' })).toMatchObject({ status: 0 })
    const nginx = spawn('nginx', [...options, '-g', 'daemon off;'], { stdio: 'inherit' })
    stop = () => nginx.kill('SIGTERM')
    url = `http://127.0.0.1:${port}`
    await expect
      .poll(() =>
        fetch(url).then(
          () => true,
          () => false,
        ),
      )
      .toBe(true)
    await addOperator(database, commandActor(), 'ann@example.com', {
      ...{ name: null, role: 'manager', organizationIds: null },
    })
  })
  afterAll(() => {
    stop()
    signIn.close()
    rmSync(directory, { recursive: true, force: true })
  })

  const get = (path: string, headers: Record<string, string>) => fetch(url + path, { headers })

  it('signs an operator in with every request', async () => {
    const headers = { cookie: 'session=ann@example.com' }
    const { session } = (await (await get('/api/session', headers)).json()) as { session: object }
    expect(session).toMatchObject({ endsAt: null, operator: { name: 'ann@example.com', role: 'manager' } })
    expect((await get('/api/fleet', headers)).status).toBe(200)
    expect(await (await get('/', headers)).text()).toContain('<html')
  })

  it('accepts changes of the console’s own pages, and of no others', async () => {
    const send = (origin: string) =>
      fetch(`${url}/api/clients`, {
        method: 'POST',
        headers: { cookie: 'session=ann@example.com', origin, 'x-console': '1' },
        body: '{"name":"CRM"}',
      })
    expect((await send(url)).status).toBe(200)
    expect((await send('https://evil.example')).status).toBe(403)
  })

  it('shows the sign-in of the provider to everybody else, and to no one with a forged header', async () => {
    const forged = { 'x-forwarded-email': 'ann@example.com' }
    for (const headers of [{}, forged]) {
      const response = await get('/api/fleet', headers)
      expect(await response.text()).toBe('choose an identity provider')
    }
    const other = await get('/api/fleet', { cookie: 'session=eve@example.com', ...forged })
    expect([other.status, await other.json()]).toEqual([
      403,
      expect.objectContaining({ message: expect.stringContaining('No active operator') }),
    ])
  })
})
