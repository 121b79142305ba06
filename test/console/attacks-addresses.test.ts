/** Guessed tokens, hostile addresses and hostile bodies on the console port. */
import { expect, it } from 'vitest'
import { CONSOLE_TOKEN, Operator, signedIn, startConsole } from '../support/console.ts'
import { createTestDatabase } from '../support/database.ts'
import { sendRaw } from '../support/raw.ts'
import { startApp } from '../support/service.ts'

const { database } = await createTestDatabase()
const { url } = await startConsole(database)
const service = await startApp(database)

const sendHead = (head: string) => sendRaw({ url }, `${head}\r\nconnection: close\r\n\r\n`)

it('guessing the token gains nothing from X-Forwarded-For unless TRUST_PROXY names the sender', async () => {
  const { url: direct } = await startConsole(database)
  const statuses: number[] = []
  for (let i = 0; i < 15; i += 1) {
    const ip = `192.0.2.${i}`
    const headers = { 'x-forwarded-for': ip, 'x-real-ip': ip, forwarded: `for=${ip}` }
    statuses.push((await new Operator(direct).signIn('wrong', headers)).status)
  }
  expect(statuses).toEqual([...Array(10).fill(401), ...Array(5).fill(429)])
})

const secrets = /devDependencies|root:|sourceMappingURL|CREATE TABLE|Index of/i
const targets = `
    /..%2f..%2fpackage.json /%2e%2e/%2e%2e/etc/passwd /assets/..%2findex.html%00.js
    /assets/%2e%2e%2f%2e%2e%2fpackage.json /assets/....//....//package.json
    /assets/%252e%252e%252fpackage.json /assets/..%5c..%5cpackage.json /assets/. /assets/%00
    /assets/../index.html /assets//etc/passwd //etc/passwd //evil.example/%2e%2e /.env /.git/config
    /package.json /index.html /assets/index.js.map /assets /console/main.tsx /dist/src/cli/main.js
    http://127.0.0.1/etc/passwd http://evil.example/api/fleet /api/../api/fleet /%61pi/fleet /api%2ffleet
    /API/fleet //api/fleet /api/fleet/ /api/fleet%20 /api/fleet;x=1 /x/../api/fleet *
  `
  .trim()
  .split(/\s+/)
it.each(targets)('an address %s is neither a file nor data without a sign-in', async (target) => {
  const answer = await sendHead(`GET ${target} HTTP/1.1\r\nhost: 127.0.0.1`)
  const [, status = ''] = /^HTTP\/1\.1 (\d+)/.exec(answer) ?? []
  expect(['200', '400', '401', '404']).toContain(status)
  expect(answer).not.toMatch(secrets)
  expect(answer).not.toContain('"accounts"')
  // A redirect to `//evil.example` would leave the console.
  expect(answer).not.toMatch(/^location:/im)
  if (status === '200') expect(answer).toContain('<div id="app">')
})

it.each(['TRACE', 'CONNECT', 'PATCH', 'DELETE', 'PROPFIND'])(
  'an address has no method %s',
  async (method) => {
    const { cookie } = await signedIn(url)
    const answer = await sendHead(
      `${method} /api/clients HTTP/1.1\r\nhost: 127.0.0.1\r\ncookie: ${cookie}\r\nx-secret: 1`,
    )
    expect(answer).not.toMatch(/^HTTP\/1\.1 2/)
    expect(answer).not.toContain('x-secret')
  },
)

it('an address of the API port is none of the console', async () => {
  for (const path of '/ /assets/ /api/fleet /api/session /api/clients /audience /sign-in'.split(' ')) {
    const answer = await fetch(service.url + path)
    const text = await answer.text()
    expect([path, answer.status]).toEqual([path, 404])
    expect(text).not.toContain('id="app"')
    expect(answer.headers.get('set-cookie')).toBeNull()
  }
  expect((await new Operator(service.url).signIn()).status).toBe(404)
})

it.each([
  ['deeply nested JSON', '['.repeat(100_000)],
  ['a token of another type', '{"token":{"length":24}}'],
  ['a prototype', `{"__proto__":{"token":"${CONSOLE_TOKEN}"}}`],
])('a sign-in with %s is refused', async (_, body) => {
  const fresh = await startConsole(database)
  const headers = { 'x-console': '1', origin: fresh.url, 'content-type': 'application/json' }
  const answer = await fetch(`${fresh.url}/sign-in`, { method: 'POST', headers, body })
  expect([400, 401, 413]).toContain(answer.status)
  expect(answer.headers.get('set-cookie')).toBeNull()
  await answer.text()
})
