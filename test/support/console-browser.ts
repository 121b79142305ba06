/** The console in Debian's Chromium, as a person sees it. Every page is watched for what must never happen. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core'
import { beforeAll, expect, onTestFinished } from 'vitest'
import type { TextDatabase } from '../../tools/text-database.ts'
import { launchChromium } from './chromium.ts'
import { type ConsoleOptions, type Operator, signedIn, startConsole } from './console.ts'
import { createTestDatabase } from './database.ts'
import type { Fleet } from './fleet.ts'
import { startJobRunner } from './jobs.ts'
import { type Service, startApp } from './service.ts'

const require = createRequire(import.meta.url)
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

export const DESKTOP = { width: 1440, height: 900 }
export const PHONE = { width: 375, height: 812 }

interface OpenConsole<Loaded> {
  browser: Browser
  url: string
  database: TextDatabase
  /** on the same database */
  service: Service
  /** what the database was filled with */
  loaded: Loaded
  visit: (visit?: ConsoleVisit) => Promise<Page>
}

/**
 * For the tests of a `describe`: a database that `load` fills, the console and the service on it, and a browser. The fields exist when
 * the tests run.
 */
export function setUpConsole<Loaded>(
  load: (database: TextDatabase) => Promise<Loaded>,
  options: ConsoleOptions = {},
): OpenConsole<Loaded> {
  const opened = { visit: (visit) => visitConsole(opened, visit) } as OpenConsole<Loaded>
  beforeAll(async () => {
    const { database } = await createTestDatabase()
    const loaded = await load(database)
    // The only one: a second runner without the platform would take jobs that call LINE, and fail.
    const jobs = startJobRunner(database, options.verifier)
    const { app, url } = await startConsole(database, { onJob: jobs.wake, ...options })
    const service = await startApp(database)
    const browser = await launchChromium()
    Object.assign(opened, { browser, url, database, service, loaded })
    return async () => {
      await browser.close()
      await Promise.all([app.close(), service.app.close()])
      await jobs.stop()
      await database.close()
    }
  })
  return opened
}

interface ConsoleVisit extends BrowserContextOptions {
  /** default: the one of the console on the database */
  url?: string
  /** default: '/' */
  path?: string
  isSignedOut?: boolean
  /** default: one who signs in with CONSOLE_TOKEN */
  operator?: Operator
  /** what the clock of the browser says */
  clock?: Date
  /** runs in the page before its own scripts */
  script?: string
  /** adds axe-core to the page */
  hasAxe?: boolean
  /** messages of the browser's console that the test provokes */
  expected?: RegExp
}

/**
 * Opens the console with a profile of its own. When the test ends, the page has sent no request to another origin, and the
 * browser's console has no error or warning, such as of a violated Content-Security-Policy.
 */
async function visitConsole(
  { browser, url: ownUrl }: Pick<OpenConsole<unknown>, 'browser' | 'url'>,
  {
    url = ownUrl,
    path = '/',
    isSignedOut = false,
    operator,
    hasAxe = false,
    expected,
    clock,
    script,
    ...options
  }: ConsoleVisit = {},
): Promise<Page> {
  const context = await browser.newContext({ locale: 'en-US', viewport: DESKTOP, ...options })
  watch(context, url, expected)
  if (clock !== undefined) await context.clock.setFixedTime(clock)
  if (script !== undefined) await context.addInitScript({ content: script })
  if (hasAxe) await context.addInitScript({ content: AXE })
  if (!isSignedOut) await signInContext(context, url, operator)
  const page = await context.newPage()
  await page.goto(url + path)
  if (!isSignedOut) await isReady(page)
  return page
}

function watch(context: BrowserContext, url: string, expected: RegExp | undefined): void {
  const origins = new Set<string>()
  const messages: string[] = []
  context.on('request', (request) => origins.add(new URL(request.url()).origin))
  context.on('weberror', (error) => messages.push(error.error().message))
  context.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) messages.push(message.text())
  })
  onTestFinished(async () => {
    await context.close()
    expect([...origins]).toEqual([url])
    expect(messages.filter((message) => !expected?.test(message))).toEqual([])
  })
}

/** The browser would keep the cookie for every port of the host, so each context has its own. */
async function signInContext(context: BrowserContext, url: string, operator?: Operator): Promise<void> {
  const { cookie } = operator ?? (await signedIn(url))
  const [name = '', value = ''] = cookie.split('=')
  await context.addCookies([{ name, value, url, httpOnly: true, sameSite: 'Strict' }])
}

/** The page has its title, and nothing of it is being loaded. */
export async function isReady(page: Page): Promise<void> {
  await page.locator('main h1').waitFor()
  await page.locator('.loading').first().waitFor({ state: 'detached' })
}

/** Follows an address as a link of the console does, without loading the document again. */
export async function goTo(page: Page, path: string): Promise<void> {
  await page.evaluate(
    `history.pushState(null, '', ${JSON.stringify(path)}); dispatchEvent(new Event('popstate'))`,
  )
  await isReady(page)
}

/** Every page of the console, and a text that it shows once it has its data. */
export function pagesOf({ tenant: { accountId }, endpointId, eventId, clientId }: Fleet): Array<{
  path: string
  text: string
}> {
  return [
    { path: '/', text: 'Corner Coffee' },
    { path: '/report', text: 'Still following' },
    { path: `/accounts/${accountId}`, text: 'Channel id' },
    { path: '/accounts/new', text: 'Add the account' },
    { path: '/accounts/file', text: 'Columns of the file' },
    { path: `/accounts/${accountId}/edit`, text: 'Further settings' },
    { path: `/accounts/${accountId}/import`, text: 'Choose a CSV or NDJSON file' },
    { path: '/settings', text: 'Role' },
    { path: '/settings/operators', text: 'Add operator' },
    { path: '/settings/notifications', text: 'No channel yet' },
    { path: '/settings/organizations', text: 'Add an organization' },
    { path: '/activity', text: 'Export as NDJSON' },
    { path: '/settings/jobs', text: 'Jobs' },
    { path: '/settings/system', text: 'Can LINE reach this service?' },
    { path: `/activity/of?kind=account&id=${accountId}`, text: 'Activity' },
    { path: `/accounts/${accountId}/audience`, text: 'U1' },
    { path: `/accounts/${accountId}/audience/U1`, text: 'relationship' },
    { path: '/events', text: 'source.userId is not a text' },
    { path: `/events/${eventId}`, text: 'webhookEventId' },
    { path: '/endpoints', text: 'Chat tool' },
    { path: `/endpoints/${endpointId}`, text: 'the receiver is being replaced' },
    { path: '/clients', text: 'CRM' },
    { path: `/clients/${clientId}`, text: 'test' },
    { path: '/search?q=U1', text: 'crm-1' },
    { path: '/nothing', text: 'This page does not exist' },
  ]
}

/** What axe-core finds, as short lines. */
async function violationsOf(page: Page): Promise<string[]> {
  const results = (await page.evaluate(`axe.run(document, { resultTypes: ['violations'] })`)) as {
    violations: Array<{ id: string; nodes: Array<{ html: string; failureSummary?: string }> }>
  }
  return results.violations.flatMap(({ id, nodes }) =>
    nodes
      .slice(0, 3)
      .map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)} – ${failureSummary?.slice(0, 300)}`),
  )
}

/** The page has no fault for assistive technology, and fits the window. @param where names the page in a failure */
export async function expectSound(page: Page, where: string): Promise<void> {
  expect([where, await violationsOf(page)]).toEqual([where, []])
  expect([where, await overflowOf(page)]).toEqual([where, 0])
}

/** Pixels by which the page is wider than the window. */
export async function overflowOf(page: Page): Promise<number> {
  return (await page.evaluate(
    `document.scrollingElement.scrollWidth - document.documentElement.clientWidth`,
  )) as number
}
