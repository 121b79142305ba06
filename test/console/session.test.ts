/** Sign-in to the console, its cookie, its limits, and which requests it refuses. */
import { readFileSync } from 'node:fs'
import { request as sendRequest } from 'node:http'
import { expect, it } from 'vitest'
import { commandActor } from '../../src/operators/actor.ts'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import {
  addSignedIn,
  CONSOLE_TOKEN,
  endSessions,
  Operator,
  PASSWORD,
  signedIn,
  signedInAs,
  startConsole,
} from '../support/console.ts'
import { createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'
import { maintain } from '../support/maintenance.ts'
import { addOperator } from '../support/operations.ts'

const { database } = await createTestDatabase()
const { url } = await startConsole(database)

const HOUR_MS = 3_600_000

async function countSessions(database: PostgresDatabase): Promise<number> {
  return (await load(database, 'select from operator_session')).length
}

it('sign-in sets a cookie for 12 hours that scripts and other sites cannot use', async () => {
  const answer = await new Operator(url).signIn()
  expect(answer.status).toBe(200)
  const attributes = answer.headers.getSetCookie().map((cookie) => cookie.split('; ').slice(1))
  expect(attributes).toEqual([
    ['Max-Age=43200', 'Path=/', 'HttpOnly', 'SameSite=Strict'],
    // The cookie of the browser, which outlasts the session.
    ['Max-Age=34560000', 'Path=/sign-in', 'HttpOnly', 'SameSite=Strict'],
  ])
})

it('sign-in marks the cookie Secure behind a proxy with https', async () => {
  const config = { logLevel: 'silent' as const, trustProxy: ['loopback'], publicUrl: null }
  const proxied = await startConsole(database, { config })
  const answer = await new Operator(proxied.url).signIn(CONSOLE_TOKEN, { 'x-forwarded-proto': 'https' })
  expect(answer.headers.get('set-cookie')).toContain('; Secure')
  const untrusted = await new Operator(url).signIn(CONSOLE_TOKEN, { 'x-forwarded-proto': 'https' })
  expect(untrusted.headers.get('set-cookie')).not.toContain('Secure')
})

it.each(['', 'wrong', CONSOLE_TOKEN.slice(1), `${CONSOLE_TOKEN}x`])(
  'sign-in refuses the token "%s"',
  async (token) => {
    const { url: fresh } = await startConsole(database)
    const answer = await new Operator(fresh).signIn(token)
    expect(answer.status).toBe(401)
    expect(answer.headers.get('set-cookie')).toBeNull()
  },
)

it('sign-in refuses an address after 10 wrong tokens, and accepts the right token from another one', async () => {
  const config = { logLevel: 'silent' as const, trustProxy: ['loopback'], publicUrl: null }
  const attacked = await startConsole(database, { config })
  const operator = new Operator(attacked.url)
  const from = (address: string) => ({ 'x-forwarded-for': address })
  const statuses = await Promise.all(
    Array.from({ length: 20 }, async () => (await operator.signIn('wrong', from('192.0.2.1'))).status),
  )
  expect(statuses.toSorted()).toEqual([...Array(10).fill(401), ...Array(10).fill(429)])
  const limited = await operator.signIn(CONSOLE_TOKEN, from('192.0.2.1'))
  expect(limited.status).toBe(429)
  expect(Number(limited.headers.get('retry-after'))).toBeGreaterThan(0)
  expect((await operator.signIn(CONSOLE_TOKEN, from('192.0.2.2'))).status).toBe(200)
})

it('sign-in fails for an operator who is disabled while the password is compared', async () => {
  const { id, email } = await addSignedIn({ url, database }, { role: 'viewer' })
  const commit = await holdTransaction(database, `update operator set status = 'disabled' where id = $1`, [
    id,
  ])
  const answer = new Operator(url).send('/sign-in', { email, password: PASSWORD })
  await waitForBlocked(database, 1)
  await commit()
  expect((await answer).status).toBe(401)
})

it("a session ends after 12 hours by the database's clock, whatever the clock of the instance says", async () => {
  const fast = await startConsole(database, { now: () => Date.now() + 13 * HOUR_MS })
  const operator = await signedIn(fast.url)
  const { endsAt } = (await operator.get('/api/session')).json.session
  expect(Math.abs(Date.parse(endsAt) - Date.now() - 12 * HOUR_MS)).toBeLessThan(60_000)
  expect((await operator.get('/api/fleet')).status).toBe(200)
  await endSessions(database)
  expect((await operator.get('/api/fleet')).status).toBe(401)
  expect((await operator.get('/api/session')).json.session).toBeNull()
})

it('a session is shared by instances with the same token, and ends when the token changes', async () => {
  const operator = await signedIn(url)
  const same = await startConsole(database)
  const changed = await startConsole(database, { token: 'another-token-of-the-tests' })
  for (const [other, status] of [
    [same.url, 200],
    [changed.url, 401],
  ] as const) {
    const elsewhere = new Operator(other)
    elsewhere.cookie = operator.cookie
    expect((await elsewhere.get('/api/fleet')).status).toBe(status)
  }
})

it('a session ends while its operator is disabled, also by another program, which deletes no session', async () => {
  const { id } = await addOperator(database, commandActor(), 'disabled@example.com', {
    ...{ name: null, role: 'viewer', organizationIds: null },
  })
  const operator = await signedInAs(database, url, id)
  for (const [status, expected] of [
    ['active', 200],
    ['disabled', 401],
  ] as const) {
    await load(database, 'update operator set status = $2 where id = $1', [id, status])
    expect((await operator.get('/api/fleet')).status).toBe(expected)
  }
})

it('a session cannot be guessed from what the database stores, which contains neither the cookie nor the token', async () => {
  const operator = await signedIn(url)
  const [name = '', value = ''] = operator.cookie.split('=')
  const rows = await load<{ text: string; hash: string }>(
    database,
    `select s::text as text, encode(id_hash, 'hex') as hash from operator_session s`,
  )
  expect(rows.length).toBeGreaterThan(0)
  for (const { text, hash } of rows) {
    for (const secret of [value, Buffer.from(value).toString('hex'), CONSOLE_TOKEN]) {
      expect(text).not.toContain(secret)
    }
    for (const guess of [hash, Buffer.from(hash, 'hex').toString('base64url')]) {
      operator.cookie = `${name}=${guess}`
      expect((await operator.get('/api/fleet')).status).toBe(401)
    }
  }
})

it('a session ends on every instance with a sign-out, also for a person who copied the cookie', async () => {
  const other = await startConsole(database)
  const [operator, colleague] = [await signedIn(url), await signedIn(url)]
  const thief = new Operator(other.url)
  thief.cookie = operator.cookie
  expect((await thief.get('/api/fleet')).status).toBe(200)
  const answer = await operator.post('/sign-out')
  expect(answer.status).toBe(204)
  expect(answer.headers.get('set-cookie')).toMatch(/=;.*(Max-Age=0|Expires=Thu, 01 Jan 1970)/)
  expect((await colleague.get('/api/fleet')).status).toBe(200)
  for (const replayed of [thief, operator]) {
    expect((await replayed.get('/api/fleet')).status).toBe(401)
    expect((await replayed.post('/api/clients', { name: 'x' })).status).toBe(401)
    expect((await replayed.get('/api/session')).json.session).toBeNull()
  }
})

it('a session is deleted by maintenance once it has expired', async () => {
  await endSessions(database)
  const operator = await signedIn(url)
  await maintain(database)
  expect(await countSessions(database)).toBe(1)
  expect((await operator.get('/api/fleet')).status).toBe(200)
})

it('a session takes the place of the one that ends first if there are 1,000', async () => {
  const oldest = await signedIn(url)
  await load(
    database,
    `insert into operator_session (id_hash, token_mac, expires_at)
     select sha256(n::text::bytea), '', now() + interval '13 hours' from generate_series(1, 1000) as n`,
  )
  const newest = await signedIn(url)
  expect(await countSessions(database)).toBe(1_000)
  expect((await oldest.get('/api/fleet')).status).toBe(401)
  expect((await newest.get('/api/fleet')).status).toBe(200)
  await load(database, `delete from operator_session where token_mac = ''`)
})

it('a session outlasts a database that does not answer, which is a 503 and no 401', async () => {
  const own = await createTestDatabase()
  const failing = await startConsole(own.database)
  const operator = await signedIn(failing.url)
  await own.database.close()
  for (const path of ['/api/fleet', '/api/session']) {
    expect([path, (await operator.get(path)).status]).toEqual([path, 503])
  }
  const signOut = await operator.post('/sign-out')
  expect([signOut.status, signOut.headers.get('set-cookie')]).toEqual([503, null])
  expect((await new Operator(failing.url).signIn('wrong')).status).toBe(401)
  expect((await new Operator(failing.url).signIn()).status).toBe(503)
})

it.each([
  ...['/api/fleet', '/%61pi/fleet', '/api/fleet?x=/assets/', '/ap%69/%66leet'],
  ...['/%61pi/session', '/%61pi/nothing', 'http://other.example/api/fleet'],
])('a request from another page reads no data at %s with the cookie of the operator', async (path) => {
  const operator = await signedIn(url)
  for (const site of ['cross-site', 'same-site']) {
    // fetch() would not send this header, and would write the address in another way.
    const { hostname: host, port } = new URL(url)
    const headers = { ...operator.headers, 'sec-fetch-site': site }
    const status = await new Promise((resolve, reject) => {
      sendRequest({ host, port, path, headers }, (response) => {
        response.resume()
        resolve(response.statusCode)
      })
        .on('error', reject)
        .end()
    })
    expect(status).toBe(403)
  }
  const { headers } = await operator.get('/api/fleet')
  expect(headers.get('access-control-allow-origin')).toBeNull()
})

it('every answer to an operator who is not signed in has a challenge that no browser knows', async () => {
  const { status, headers } = await new Operator(url).get('/api/fleet')
  expect([status, headers.get('www-authenticate')]).toEqual([401, 'OA-Audience realm="oa-audience"'])
  expect([headers.get('cache-control'), headers.get('x-content-type-options')]).toEqual([
    'no-store',
    'nosniff',
  ])
})

it.each(['/', '/accounts/1', '/api/fleet', '/api/nothing', '/assets/nothing.js', '/%2e%2e/package.json'])(
  'every answer %s carries the security headers',
  async (path) => {
    const { headers } = await (await signedIn(url)).get(path)
    const policy = headers.get('content-security-policy')
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:")
    expect(policy).not.toContain('unsafe')
    expect(headers.get('x-content-type-options')).toBe('nosniff')
    expect(headers.get('referrer-policy')).toBe('no-referrer')
    expect(headers.get('cross-origin-opener-policy')).toBe('same-origin')
    expect(headers.get('cross-origin-resource-policy')).toBe('same-origin')
    expect(headers.get('cache-control')).toBe('no-store')
  },
)

it('serves hashed assets that browsers keep, and the page that they do not', async () => {
  const operator = new Operator(url)
  const page = await operator.get('/accounts/1/audience/U1')
  expect(page.headers.get('content-type')).toContain('text/html')
  const [, script = ''] = /src="(\/assets\/[^"]+\.js)"/.exec(page.text) ?? []
  const { status, headers } = await operator.get(script)
  expect(status).toBe(200)
  expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
})

const now = () => Date.parse('2026-01-01T00:00:00Z')

async function securityText(url: string, headers = {}) {
  const response = await fetch(`${url}/.well-known/security.txt`, { headers })
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8'])
  const lines = (await response.text()).trimEnd().split('\n')
  return lines.map((line) => line.split(/: (.*)/).slice(0, 2))
}

it('security.txt has the fields that RFC 9116 requires, ends a month after the response, and refers to SECURITY.md of this version', async () => {
  const { url } = await startConsole(database, { now })
  expect(await securityText(url)).toEqual([
    ['Contact', `${url}/SECURITY.md`],
    ['Expires', '2026-01-31T00:00:00.000Z'],
    ['Policy', `${url}/SECURITY.md`],
    ['Preferred-Languages', 'en'],
  ])
  const policy = await (await fetch(`${url}/SECURITY.md`)).text()
  expect(policy).toBe(readFileSync(new URL('../../SECURITY.md', import.meta.url), 'utf8'))
})

it('security.txt has the public address behind a proxy: CONSOLE_URL, or what the trusted proxy reports', async () => {
  const headers = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'console.example.com' }
  const contacts = [{ trustProxy: ['loopback'] }, { consoleUrl: 'https://console.example.com' }, {}].map(
    async (config) => (await securityText((await startConsole(database, { config })).url, headers))[0]?.[1],
  )
  expect(await Promise.all(contacts)).toEqual([
    'https://console.example.com/SECURITY.md',
    'https://console.example.com/SECURITY.md',
    expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/SECURITY\.md$/),
  ])
})
