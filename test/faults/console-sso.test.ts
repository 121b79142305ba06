/** deploy/nginx-console.conf in front of the console, with a stand-in for oauth2-proxy. */
import { beforeAll, describe, expect, it } from 'vitest'
import { commandActor } from '../../src/operators/actor.ts'
import { startConsole } from '../support/console.ts'
import { createTestDatabase } from '../support/database.ts'
import { serveForTest } from '../support/http-server.ts'
import { canRunNginx, startNginx } from '../support/nginx.ts'
import { addOperator } from '../support/operations.ts'

describe.runIf(canRunNginx('nginx-console.conf'))('the console behind nginx with auth_request', async () => {
  const { database } = await createTestDatabase()
  const config = { logLevel: 'silent' as const, trustProxy: ['127.0.0.1'], publicUrl: null }
  const { url: consoleUrl } = await startConsole(database, { config, userHeader: 'x-forwarded-email' })
  // As oauth2-proxy responds with --set-xauthrequest: 202 and the address of a session, or 401.
  const signIn = await serveForTest(({ url: path, headers }, response) => {
    if (path === '/oauth2/sign_in') response.end('choose an identity provider')
    else if (headers.cookie === undefined) response.writeHead(401).end()
    else response.writeHead(202, { 'x-auth-request-email': headers.cookie.replace('session=', '') }).end()
  })
  let url = ''
  beforeAll(async () => {
    const nginx = await startNginx('nginx-console.conf', {
      ...{ '127.0.0.1:4180': new URL(signIn).host, '127.0.0.1:3001': new URL(consoleUrl).host },
    })
    url = nginx.url
    await addOperator(database, commandActor(), 'ann@example.com', {
      ...{ name: null, role: 'manager', organizationIds: null },
    })
    return nginx.stop
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
