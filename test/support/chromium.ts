/** Debian's Chromium, driven by Playwright. It cannot reach any other machine. */
import { existsSync } from 'node:fs'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core'
import { expect, onTestFinished } from 'vitest'

const PATHS = [process.env.CHROME_PATH ?? '', '/usr/bin/chromium', '/usr/bin/google-chrome']
const executablePath = PATHS.find((path) => path !== '' && existsSync(path))

/** A host of its own, so that pages are of another site than the service. Chromium resolves it to the loopback address. */
export const SHOP_HOST = 'shop.localhost'

/** False without Chromium. The run then reports what it does not test. */
export function canRunChromium(untested: string): boolean {
  if (executablePath !== undefined) return true
  console.warn(
    `\n!!! Chromium is not installed: ${untested} NOT tested (apt-get install chromium, or set CHROME_PATH)\n`,
  )
  return false
}

/** Call it once for a file. The caller closes the browser. */
export async function launchChromium(): Promise<Browser> {
  if (executablePath === undefined) throw new Error('Chromium is not installed')
  return chromium.launch({
    executablePath,
    args: ['--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE *.localhost'],
  })
}

/** A page with a profile of its own. When the test ends, no request has left the machine and no script has failed. */
export async function visit(browser: Browser, url: string): Promise<Page> {
  const context: BrowserContext = await browser.newContext()
  const hosts: string[] = []
  const errors: string[] = []
  context.on('request', (request) => hosts.push(new URL(request.url()).hostname))
  context.on('weberror', (error) => errors.push(error.error().message))
  onTestFinished(async () => {
    await context.close()
    expect(hosts.filter((host) => host !== '127.0.0.1' && host !== SHOP_HOST)).toEqual([])
    expect(errors).toEqual([])
  })
  const page = await context.newPage()
  await page.goto(url)
  return page
}
