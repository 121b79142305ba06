/** examples/liff in a real browser. Only LINE's script is a stand-in, with an ID token of the simulated login. */
import { readFileSync } from 'node:fs'
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { canRunChromium, launchChromium, SHOP_HOST, visit } from '../support/chromium.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { serveForTest } from '../support/http-server.ts'
import { startPlatform } from '../support/platform.ts'
import { startApp } from '../support/service.ts'

const LOGIN_CHANNEL = '2000000007'
const EXAMPLE = readFileSync(new URL('../../examples/liff/index.html', import.meta.url), 'utf8')

const { database } = await createTestDatabase()
const platform = await startPlatform()
const service = await startApp(database, { config: { lineApiUrl: platform.url } })
const tenant = await addTenant(database, { loginChannelIds: [LOGIN_CHANNEL] })

/** Serves the example with its values set, and LINE's script. Returns its URL. */
async function serveExample(liff: string, serviceUrl = service.url): Promise<string> {
  const values: Array<[string | RegExp, string]> = [
    [/https:\/\/static\.line-scdn\.net[^"]*/, '/sdk.js'],
    ['https://oa.example.com', serviceUrl],
    ['<tracking key>', tenant.trackingKey],
    ['https://line.me/R/ti/p/%40basicid', '/friend'],
  ]
  const html = values.reduce((text, [from, to]) => {
    expect(text).toMatch(from)
    return text.replace(from, to)
  }, EXAMPLE)
  const address = await serveForTest((request, response) => {
    const isScript = request.url === '/sdk.js'
    const type = isScript ? 'text/javascript' : 'text/html; charset=utf-8'
    const content = isScript
      ? `window.liff = ${liff}`
      : request.url === '/friend'
        ? '<title>Friend</title>'
        : html
    response.writeHead(200, { 'content-type': type }).end(content)
  })
  return address.replace('127.0.0.1', SHOP_HOST)
}

const liffOf = (token: string) =>
  `{ init: async () => {}, isLoggedIn: () => true, getIDToken: () => ${JSON.stringify(token)} }`

describe.runIf(canRunChromium('the example of a LIFF page is'))('the example of a LIFF page', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await launchChromium()
    return () => browser.close()
  })

  it.each([
    ['in its address', '?utm_source=qr-shop&utm_campaign=autumn'],
    ['inside liff.state', `?liff.state=${encodeURIComponent('/?utm_source=qr-shop&utm_campaign=autumn')}`],
  ])('reports the link %s, and opens the friend link', async (_name, query) => {
    const userId = randomUserId()
    const token = await platform.login.idToken({
      userId,
      loginChannelId: LOGIN_CHANNEL,
      issuedAtMs: Date.now(),
    })
    const page = await visit(browser, `${await serveExample(liffOf(token))}/${query}`)
    await page.waitForURL('**/friend')
    await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: Date.now() })])
    expect((await service.member(tenant, userId))?.source).toMatchObject({
      source: 'qr-shop',
      campaign: 'autumn',
    })
  })

  it('opens the friend link although the service cannot be reached', async () => {
    const page = await visit(browser, await serveExample(liffOf('none'), 'http://127.0.0.1:1'))
    await page.waitForURL('**/friend')
  })
})
