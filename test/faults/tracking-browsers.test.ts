/** Browser libraries work unmodified on a page of another origin, with the settings of docs/api.md. */
import { fileURLToPath } from 'node:url'
import type { Browser } from 'playwright-core'
import { build, type InlineConfig, type Rolldown } from 'vite'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { randomUserId } from '../../tools/simulator/events.ts'
import { canRunChromium, launchChromium, SHOP_HOST, visit } from '../support/chromium.ts'
import { type ListedLibrary, listedLibraries, settingFor } from '../support/client-libraries.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { serveForTest } from '../support/http-server.ts'
import { setUpService } from '../support/service.ts'
import { trackedEvents } from '../support/tracked.ts'

const EXAMPLE = fileURLToPath(new URL('../../examples/tracking', import.meta.url))
const LIBRARIES = {
  'segment.js': '@segment/analytics-next',
  'rudderstack.js': '@rudderstack/analytics-js/bundled',
  'jitsu.js': '@jitsu/js',
}

/** Files by path. The libraries are bundled as they are published; the example is built as its users build it. */
async function buildFiles(): Promise<Map<string, string>> {
  const libraries = await bundle({
    build: {
      rolldownOptions: {
        input: LIBRARIES,
        preserveEntrySignatures: 'strict',
        output: { entryFileNames: 'libraries/[name]', chunkFileNames: 'libraries/[name].js' },
      },
    },
  })
  const example = await bundle({ root: EXAMPLE, base: '/example/' })
  return new Map([...prefixed('/', libraries), ...prefixed('/example/', example)])
}

const prefixed = (prefix: string, files: Array<[string, string]>) =>
  files.map(([name, content]): [string, string] => [prefix + name, content])

async function bundle({ build: options, ...config }: InlineConfig): Promise<Array<[string, string]>> {
  const built = await build({
    configFile: false,
    publicDir: false,
    logLevel: 'warn',
    ...config,
    build: { write: false, ...options },
  })
  return (built as Rolldown.RolldownOutput).output.map((file) => [
    file.fileName,
    file.type === 'chunk' ? file.code : String(file.source),
  ])
}

type Shop = Awaited<ReturnType<typeof openShop>>

async function openShop() {
  const files = await buildFiles()
  files.set('/left.html', '<!doctype html><title>Left</title>')
  const address = await serveForTest((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://shop')
    const content = files.get(pathname.endsWith('/') ? `${pathname}index.html` : pathname)
    const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html; charset=utf-8'
    response.writeHead(content === undefined ? 404 : 200, { 'content-type': type }).end(content)
  })
  const url = address.replace('127.0.0.1', SHOP_HOST)
  /** Adds a page with a module script and a link that leaves it. Returns its URL. */
  const addPage = (script: string) => {
    const path = `/${files.size}.html`
    files.set(
      path,
      `<!doctype html><title>Shop</title><a href="/left.html">Leave</a><script type="module">${script}</script>`,
    )
    return url + path
  }
  return { url, addPage }
}

/** Module scripts that leave a client in `client` and resolve once it sends events, and the calls that each client has. */
const DRIVERS: Record<string, { script: (setting: string) => string; calls: string[] }> = {
  '@segment/analytics-next': {
    script: (setting) => `
      import { AnalyticsBrowser } from '/libraries/segment.js'
      const client = ${setting}
      await client.ready()`,
    calls: ['identify', 'track', 'page', 'screen', 'group', 'alias'],
  },
  '@rudderstack/analytics-js/bundled': {
    script: (setting) => `
      import { RudderAnalytics } from '/libraries/rudderstack.js'
      const analytics = new RudderAnalytics()
      ${setting}
      const client = analytics
      await new Promise((resolve) => client.ready(resolve))`,
    calls: ['identify', 'track', 'page', 'group', 'alias'],
  },
  '@jitsu/js': {
    script: (setting) => `
      import { jitsuAnalytics } from '/libraries/jitsu.js'
      const client = ${setting}`,
    calls: ['identify', 'track', 'page', 'group'],
  },
}

const ARGUMENTS: Record<string, (userId: string) => unknown[]> = {
  identify: (userId) => [userId, { plan: 'gold' }],
  track: () => ['Ordered', { value: 120 }],
  page: () => ['Menu', {}],
  screen: () => ['Menu', {}],
  group: () => ['g-1', { employees: 4 }],
  alias: (userId) => [userId, 'a-1'],
}

const { database, service } = await setUpService()
const libraries = listedLibraries().filter(({ runsIn }) => runsIn !== 'Node')

it('the table of client libraries lists exactly the browser libraries that are tested here', () => {
  const listed = new Set(libraries.map(({ library }) => library))
  expect([...listed].sort()).toEqual(Object.keys(DRIVERS).sort())
})

describe.runIf(canRunChromium('client libraries for browsers are'))('a page of another origin', () => {
  let browser: Browser
  let shop: Shop
  /** The requests of the running test that the service has answered. Playwright does not see those of a page that is left. */
  let answered: string[] = []
  beforeAll(async () => {
    browser = await launchChromium()
    shop = await openShop()
    service.app.requestObservers.push(({ request, status }) => {
      answered.push(`${request?.method} ${request?.url.split('?')[0]} ${status}`)
    })
    return () => browser.close()
  })
  beforeEach(() => {
    answered = []
  })
  afterEach(() => {
    expect(answered.filter((answer) => !/ 20[04]$/.test(answer))).toEqual([])
  })

  /** Opens a page with a client of the library. `call` makes one of its calls. */
  async function open(listed: ListedLibrary, { trackingKey }: Tenant, setting = settingFor(listed, service)) {
    const script = DRIVERS[listed.library]?.script(setting)
    const url = shop.addPage(`
      const TRACKING_KEY = ${JSON.stringify(trackingKey)}
      ${script}
      window.call = async (name, parameters) => { await client[name](...parameters) }`)
    const page = await visit(browser, url)
    await page.waitForFunction('window.call')
    const call = (name: string, userId: string) =>
      page.evaluate(`window.call('${name}', ${JSON.stringify(ARGUMENTS[name]?.(userId))})`)
    return { page, call }
  }

  it.each(libraries)('$library ($runsIn) delivers each of its calls once', async (listed) => {
    const tenant = await addTenant(database)
    const userId = randomUserId()
    const { page, call } = await open(listed, tenant)
    const calls = DRIVERS[listed.library]?.calls ?? []
    for (const name of calls) await call(name, userId)
    if (listed.runsIn === 'browser, batches') await page.click('a')
    const events = await trackedEvents(database, tenant, calls.length)
    expect(events.map(({ kind }) => kind).sort()).toEqual(calls.toSorted())
    for (const event of events) expect(event.userId).toBe(userId)
    expect(new Set(events.map(({ payload }) => payload.messageId)).size).toBe(events.length)
  })

  it('may send beacons without a library, of text and of JSON', async () => {
    const tenant = await addTenant(database)
    const userId = randomUserId()
    const event = { writeKey: tenant.trackingKey, type: 'page', userId }
    const page = await visit(
      browser,
      shop.addPage(`
        addEventListener('pagehide', () => {
          const body = ${JSON.stringify(JSON.stringify(event))}
          navigator.sendBeacon('${service.url}/api/tracking', body)
          navigator.sendBeacon('${service.url}/api/tracking', new Blob([body], { type: 'application/json' }))
          fetch('${service.url}/api/tracking/v1/track', { method: 'POST', keepalive: true, body })
        })`),
    )
    await page.click('a')
    const events = await trackedEvents(database, tenant, 3)
    expect(events.map(({ kind, userId }) => ({ kind, userId }))).toEqual(
      expect.arrayContaining([
        { kind: 'page', userId },
        { kind: 'page', userId },
        { kind: 'track', userId },
      ]),
    )
  })

  it('may be the example, which connects orders to the person who signed in', async () => {
    const tenant = await addTenant(database)
    const userId = randomUserId()
    const { host } = new URL(service.url)
    const page = await visit(browser, `${shop.url}/example/?host=${host}&key=${tenant.trackingKey}`)
    await page.fill('[name=userId]', userId)
    await page.click('text=Sign in')
    await page.waitForSelector(`text=Signed in as ${userId}`)
    await page.click('text=Order a latte')
    await page.waitForSelector('text=Latte ordered')
    // The batch is sent when the person leaves.
    await page.goto(`${shop.url}/left.html`)
    const events = await trackedEvents(database, tenant, 3)
    expect(events.map(({ kind, userId, payload }) => [kind, userId, payload.event])).toEqual([
      ['page', null, undefined],
      ['identify', userId, undefined],
      ['track', userId, 'Coffee Ordered'],
    ])
  })
})
