/** What other pages and stolen cookies can do with the console: nothing. */
import { once } from 'node:events'
import { createServer, request as sendRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { canRunChromium, launchChromium } from '../support/chromium.ts'
import { CONSOLE_TOKEN, Operator, signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'

const { database } = await createTestDatabase()
const { url } = await startConsole(database)
const tenant = await addTenant(database)

const countClients = async () => (await database.query('select from api_client')).length

/** Sends headers that fetch() does not send. */
function send(path: string, method: string, headers: Record<string, string>, body = ''): Promise<number> {
  return new Promise((resolve, reject) => {
    sendRequest(url + path, { method, headers }, (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
      .on('error', reject)
      .end(body)
  })
}

describe('a forged request with the cookie of the operator changes nothing', () => {
  const body = '{"name":"forged"}'
  const ours = { 'x-console': '1', origin: url }
  const posts: Array<[name: string, headers: Record<string, string>]> = [
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['JSON as text', { 'content-type': 'text/plain' }],
    ['no header of the console', { origin: url }],
    ['an origin that begins like ours', { ...ours, origin: `${url}.evil.example` }],
    ['an origin with our address as user', { ...ours, origin: `${url}@evil.example` }],
    ['a null origin', { ...ours, origin: 'null' }],
    ['no origin', { 'x-console': '1' }],
    ['another site', { ...ours, 'sec-fetch-site': 'cross-site' }],
    ['another port of this host', { ...ours, 'sec-fetch-site': 'same-site' }],
    ['a person who typed the address', { ...ours, 'sec-fetch-site': 'none' }],
  ]
  it.each(posts)('%s', async (_, headers) => {
    const { cookie } = await signedIn(url)
    const before = await countClients()
    expect(await send('/api/clients', 'POST', { cookie, ...headers }, body)).toBe(403)
    expect(await countClients()).toBe(before)
    expect(await send('/sign-in', 'POST', headers, JSON.stringify({ token: CONSOLE_TOKEN }))).toBe(403)
  })

  const overrides = { 'x-http-method-override': 'POST', 'x-method-override': 'POST' }
  it.each<[name: string, method: string, path: string, headers: Record<string, string>]>([
    ['a method in a header', 'GET', '/api/clients', overrides],
    ['a method in the query', 'GET', '/api/clients?_method=POST&name=forged', {}],
    ['GET on an action', 'GET', `/api/keys/${tenant.keyId}/revoke`, ours],
    ['PUT', 'PUT', '/api/clients', ours],
  ])('%s', async (_, method, path, headers) => {
    const { cookie } = await signedIn(url)
    const before = await countClients()
    await send(path, method, { cookie, ...headers })
    expect(await countClients()).toBe(before)
    const [key] = await database.query('select status from api_key where id = $1', [tenant.keyId])
    expect(key?.status).toBe('active')
  })

  it('and a preflight is never answered with a permission', async () => {
    const answer = await fetch(`${url}/api/clients`, {
      method: 'OPTIONS',
      headers: {
        origin: 'http://evil.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'x-console',
      },
    })
    const names = [...answer.headers.keys()].filter((name) => name.startsWith('access-control-'))
    expect([answer.ok, names]).toEqual([false, []])
  })
})

describe.runIf(canRunChromium('attacks on the console from other pages are'))(
  'a page of another port',
  () => {
    it('neither reads nor changes nor frames the console of a person who is signed in', async () => {
      const server = createServer((_, response) =>
        response.setHeader('content-type', 'text/html').end('<p>evil</p>'),
      )
      server.listen(0, '127.0.0.1')
      await once(server, 'listening')
      const browser = await launchChromium()
      onTestFinished(async () => {
        await browser.close()
        server.close()
      })
      const { cookie } = await signedIn(url)
      const [name = '', value = ''] = cookie.split('=')
      const context = await browser.newContext()
      await context.addCookies([{ name, value, url, httpOnly: true, sameSite: 'Strict' }])
      const page = await context.newPage()
      const before = await countClients()
      // Cookies belong to all ports of a host, and SameSite counts all of them as one site.
      await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
      const outcomes = await page.evaluate(`(async () => {
      const attempt = (path, options) => fetch('${url}' + path, { credentials: 'include', ...options }).then(
        async (answer) => answer.type + (await answer.text()).length, () => 'refused')
      const post = { method: 'POST', body: '{"name":"forged"}' }
      const closed = (target) => new Promise((resolve) => { target.onopen = () => resolve('open'); target.onerror = () => resolve('refused') })
      const stream = closed(new EventSource('${url}/api/events', { withCredentials: true }))
      const socket = closed(new WebSocket('${url.replace('http', 'ws')}/api/events'))
      const form = Object.assign(document.createElement('form'), { method: 'post', enctype: 'text/plain', action: '${url}/api/clients', target: 'frame' })
      const frame = Object.assign(document.createElement('iframe'), { name: 'frame', src: '${url}/' })
      document.body.append(form, frame)
      await new Promise((resolve) => { frame.onload = resolve })
      form.submit()
      const image = await new Promise((resolve) => {
        const element = new Image()
        element.onload = () => resolve('shown')
        element.onerror = () => resolve('refused')
        element.src = '${url}/api/fleet'
      })
      return [
        await attempt('/api/fleet'), await attempt('/api/clients', post), await attempt('/api/fleet', { mode: 'no-cors' }),
        await attempt('/api/clients', { ...post, mode: 'no-cors' }), await attempt('/api/clients', { ...post, headers: { 'x-console': '1' } }),
        await stream, await socket, image,
      ]
    })()`)
      expect(outcomes).toEqual(Array(8).fill('refused'))
      expect(page.frames().filter((frame) => frame.url().startsWith(url))).toEqual([])
      expect(await countClients()).toBe(before)
    })
  },
)

it('a request for another host name, as after DNS rebinding, needs a sign-in, because browsers send the cookie to its own host alone', async () => {
  const headers = {
    host: 'evil.example',
    origin: 'http://evil.example',
    'sec-fetch-site': 'same-origin',
    'x-console': '1',
  }
  expect(await send('/api/fleet', 'GET', headers)).toBe(401)
  expect(await send('/api/clients', 'POST', headers, '{}')).toBe(401)
  expect((await new Operator(url).signIn()).headers.get('set-cookie')).not.toContain('Domain')
})

it('the cookie and the token are in no log line and no answer', async () => {
  const lines: string[] = []
  const log = { write: (line: string) => void lines.push(line) }
  const logged = await startConsole(database, { config: { logLevel: 'info' }, log })
  const operator = await signedIn(logged.url)
  const wrong = await new Operator(logged.url).signIn(`${CONSOLE_TOKEN}x`)
  const answers = [wrong, await operator.get('/api/session'), await operator.post('/api/clients', [])]
  answers.push(await operator.get('/api/nothing'))
  await expect.poll(() => lines.length).toBeGreaterThan(2)
  const everything = [...lines, ...answers.map(({ text }) => text)].join('\n')
  expect(everything).not.toContain(CONSOLE_TOKEN)
  expect(everything).not.toContain(operator.cookie.split('=')[1])
})
