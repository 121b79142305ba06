/**
 * Takes the pictures of README and docs/console.md from the demo: `npm run screenshots -- [directory] [name …]`, by default all of them
 * into docs/images.
 * It needs Chromium, and fonts for Japanese and Thai (fonts-noto-cjk, fonts-thai-tlwg).
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { chromium } from 'playwright-core'

const ROOT = new URL('..', import.meta.url).pathname
const DESKTOP = { width: 1440, height: 900 }
/** Of the pages that have no picture in the README. */
const SMALL = { width: 1120, height: 700 }
const PHONE = { width: 375, height: 812 }
/** The README loads all of them at once. */
const PICTURE_MAX_BYTES = 250_000
const START_TIMEOUT_MS = 120_000
/** An account of the fleet that has something to fix. */
const ACCOUNT = 'Tokyo Ramen'
const DEMO_ORGANIZATION = 'Demo agency'
const FLEET_FILE = [
  'organization,name,channel_id,channel_secret,basic_id',
  ...[
    'Kyoto Tea House',
    'Nara Bakery',
    'Chiang Mai Florist',
    'Blue Bicycle',
    'Phuket Diving',
    'Taipei Noodles',
  ].map((name, index) => `Demo fleet,${name},200123456${index},${String(index).repeat(32)},@demo000${index}`),
].join('\n')

const [, , directoryName = join(ROOT, 'docs/images'), ...wanted] = process.argv
const directory = resolve(directoryName)
const executablePath = [process.env.CHROME_PATH ?? '', '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
  (path) => path !== '' && existsSync(path),
)
if (executablePath === undefined) {
  console.error('Chromium is not installed: apt-get install chromium, or set CHROME_PATH')
  process.exit(1)
}

mkdirSync(directory, { recursive: true })
const data = mkdtempSync(join(tmpdir(), 'oa-audience-screenshots-'))
const demo = await startDemo()
const browser = await chromium.launch({ executablePath })
try {
  await takePictures()
} finally {
  await browser.close()
  demo.process.kill('SIGINT')
  await demo.exited
  rmSync(data, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
}

/** Starts the demo with its own data, and reads the address and the token that it prints. */
async function startDemo() {
  const { PATH, HOME } = process.env
  const child = spawn(process.execPath, [join(ROOT, 'dist/src/cli/main.js'), 'demo'], {
    env: { PATH, HOME, DATA_DIR: data, PORT: '0', NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise((done) => child.once('exit', done))
  let output = ''
  const started = new Promise((done, fail) => {
    child.stdout.on('data', (chunk) => {
      output += chunk
      const [, url, token] = /(http:\/\/\S+)\s+token: (\S+)/.exec(output) ?? []
      const [, service] = /The service stays up at (http:\S+):/.exec(output) ?? []
      if (service !== undefined) done({ url: new URL(url).origin, token, service })
    })
    void exited.then((code) => fail(new Error(`the demo exited with ${code}:\n${output}`)))
    setTimeout(() => fail(new Error(`the demo printed no token:\n${output}`)), START_TIMEOUT_MS).unref()
  })
  try {
    return { ...(await started), process: child, exited }
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
}

async function takePictures() {
  const signedOut = await openPage({ viewport: SMALL, colorScheme: 'light' })
  await take(signedOut, 'sign-in')
  const light = await signIn({ viewport: DESKTOP, colorScheme: 'light' })
  await light.getByRole('link', { name: ACCOUNT }).waitFor()
  await light.locator('.fleet svg.spark').first().waitFor()
  await take(light, 'fleet')
  await light.getByRole('link', { name: ACCOUNT }).click()
  await light.locator('.plot canvas').nth(1).waitFor()
  await take(light, 'account')
  const page = await signIn({ viewport: SMALL, colorScheme: 'light' })
  await takeReport(light)
  await takeAccounts(page)
  await takeAudience(page, light)
  await takeOthers(page)

  const dark = await signIn({ viewport: DESKTOP, colorScheme: 'dark' })
  await dark.getByRole('link', { name: ACCOUNT }).waitFor()
  await take(dark, 'fleet-dark')
  const phone = await signIn({ viewport: PHONE, colorScheme: 'light', hasTouch: true })
  await phone.getByRole('link', { name: ACCOUNT }).waitFor()
  await take(phone, 'fleet-phone')
}

async function takeReport(page) {
  await page.goto(`${demo.url}/report`)
  await page.locator('canvas').waitFor()
  await page.getByText('qr-shop').waitFor()
  await take(page, 'report')
}

async function takeAccounts(page) {
  await page.goto(`${demo.url}/accounts/new`)
  await page.getByLabel('Channel id', { exact: true }).fill('2001234567')
  await page.getByLabel('Name', { exact: true }).fill('Kyoto Tea House')
  await page.getByLabel('Channel secret').fill('0'.repeat(32))
  await take(page, 'account-form')
  await page.goto(`${demo.url}/accounts/file`)
  await page.getByLabel('Drop the CSV file here').setInputFiles({
    name: 'fleet.csv',
    mimeType: 'text/csv',
    buffer: Buffer.from(FLEET_FILE),
  })
  await page.getByText('6 to add').waitFor()
  await take(page, 'fleet-file')
}

/** The member is one of the demo's own account, with a history of every kind. */
async function takeAudience(page, light) {
  await light.goto(`${demo.url}/search?q=@`)
  await light.locator('tr', { hasText: DEMO_ORGANIZATION }).getByRole('link').first().click()
  await takeVerification(light)
  await light.getByRole('link', { name: 'Audience', exact: true }).click()
  await light.locator('tr', { hasText: 'vip' }).getByRole('link').first().click()
  await light.locator('.timeline li').first().waitFor()
  await take(light, 'member')
  await page.goto(`${demo.url}/search?q=Sakura`)
  await page.getByRole('link', { name: 'Sakura Pharmacy' }).first().click()
  await page.getByRole('link', { name: 'Audience', exact: true }).click()
  await page.getByLabel('Search by', { exact: true }).selectOption('tag')
  // Each sixth of 420 people. The list follows the field after a moment.
  const filtered = page.waitForResponse((response) => response.url().includes('tag=vip'))
  await page.getByRole('searchbox', { name: 'Search members' }).fill('vip')
  await filtered
  await page.locator('tbody tr', { hasNotText: 'vip' }).first().waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Change tags…' }).click()
  await page.getByRole('dialog').getByText('matches 70 members').waitFor()
  await page.getByLabel('Add tags').fill('winter sale')
  await take(page, 'audience')
  await page.getByRole('dialog').getByRole('button', { name: 'Change 70 members' }).click()
  await page.getByRole('dialog').getByText('70 changed').waitFor()
  await page.goto(`${demo.url}/events?status=failed`)
  await page.getByRole('button', { name: 'Retry all matching events' }).first().click()
  await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click()
  await page.getByRole('dialog').getByText('failed again').waitFor()
  await page.goto(`${demo.url}/settings/jobs`)
  await page.locator('tbody tr').nth(1).waitFor()
  await take(page, 'jobs')
  await page.goto(`${demo.url}/search?q=Ann`)
  await page.locator('main tbody tr').first().waitFor()
  await take(page, 'search')
}

/** Of an account whose newest delivery the stored secret does not sign. */
async function takeVerification(page) {
  const [, id] = /accounts\/(\d+)/.exec(page.url())
  const { account } = await (await page.request.get(`${demo.url}/api/accounts/${id}`)).json()
  const body = JSON.stringify({ destination: account.botUserId, events: [{ type: 'follow' }] })
  await fetch(`${demo.service}/api/line/${id}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-line-signature': `${'A'.repeat(43)}=` },
    body,
  })
  await openDetails(page)
  // Counts of deliveries are stored every few seconds.
  const refused = page.locator('ul.checks li', { hasText: 'does not match' })
  for (let tries = 0; tries < 30 && (await refused.count()) === 0; tries += 1) {
    await page.getByRole('button', { name: 'Verify now' }).click()
    await page.waitForTimeout(1_000)
  }
  await openDetails(page)
  await refused.scrollIntoViewIfNeeded()
  await take(page, 'verification')
}

function openDetails(page) {
  return page.evaluate(() => {
    for (const details of document.querySelectorAll('details')) details.open = true
  })
}

async function takeOthers(page) {
  for (const name of ['events', 'clients', 'endpoints']) {
    await page.goto(`${demo.url}/${name}`)
    await page.locator('tbody tr').first().waitFor()
    await take(page, name)
  }
  await page.getByRole('link', { name: 'Chat tool' }).first().click()
  await page.getByRole('button', { name: 'Replay a time range…' }).click()
  await page.getByRole('button', { name: 'Count first' }).click()
  await page.getByRole('dialog').getByText('events would be sent').waitFor()
  await take(page, 'replay')
  await page.goto(`${demo.url}/endpoints`)
  await page.getByRole('link', { name: 'Loyalty app' }).first().click()
  await page.getByRole('region', { name: 'Deliveries' }).locator('tbody tr').first().waitFor()
  await take(page, 'endpoint')
  await page.goto(`${demo.url}/activity`)
  await page.locator('select', { hasText: 'Krit' }).selectOption('Krit Wongsa')
  await page.getByText('imported the followers').waitFor()
  await take(page, 'activity')
  await page.goto(`${demo.url}/settings/operators`)
  await page.getByText('elena.ruiz@example.com').waitFor()
  await take(page, 'settings')
  await page.getByRole('link', { name: 'Notifications' }).click()
  await page.getByRole('link', { name: 'On call' }).waitFor()
  await take(page, 'notifications')
  await page.getByRole('link', { name: 'On call' }).click()
  await page.locator('.messages > li').first().waitFor()
  await take(page, 'notification')
}

async function openPage(options) {
  const context = await browser.newContext({
    locale: 'en-US',
    timezoneId: 'Asia/Tokyo',
    deviceScaleFactor: 1,
    ...options,
  })
  const page = await context.newPage()
  await page.goto(demo.url)
  await page.getByLabel('Token').waitFor()
  return page
}

async function signIn(options) {
  const page = await openPage(options)
  await page.getByLabel('Token').fill(demo.token)
  await page.keyboard.press('Enter')
  // Not any heading: the form has one, and a page opened before the response would be opened without a session.
  await page.locator('.page-header h1').waitFor()
  return page
}

async function take(page, name) {
  if (wanted.length > 0 && !wanted.includes(name)) return
  const path = join(directory, `${name}.png`)
  await page.locator('.loading').first().waitFor({ state: 'detached' })
  await page.mouse.move(0, 0)
  // Neither a focus ring nor a blinking caret.
  await page.evaluate(() => document.activeElement?.blur())
  await page.screenshot({ path, animations: 'disabled', scale: 'css' })
  const { size } = statSync(path)
  console.log(`${path}  ${Math.round(size / 1000)} KB`)
  if (size > PICTURE_MAX_BYTES) throw new Error(`${name}.png is larger than ${PICTURE_MAX_BYTES} bytes`)
}
