/** CONTRACT: every page of the console at 1,000 accounts: readable by everybody, on phones, and by itself. */
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { canRunChromium, launchChromium } from '../support/chromium.ts'
import { startConsole } from '../support/console.ts'
import {
  DESKTOP,
  goTo,
  overflowOf,
  PHONE,
  pagesOf,
  violationsOf,
  visitConsole,
} from '../support/console-browser.ts'
import { createTestDatabase } from '../support/database.ts'
import { type Fleet, loadFleet } from '../support/fleet.ts'

const ACCOUNTS = 1_000
const MEMBERS = 5_000

describe.runIf(canRunChromium('the pages of the console are'))('every page', () => {
  let browser: Browser
  let fleet: Fleet
  let url: string
  beforeAll(async () => {
    const { database } = await createTestDatabase()
    fleet = await loadFleet(database, { accounts: ACCOUNTS, members: MEMBERS })
    const started = await startConsole(database)
    url = started.url
    browser = await launchChromium()
    return async () => {
      await browser.close()
      await started.app.close()
      await database.close()
    }
  })

  it('has no fault for assistive technology, and fits a phone', async () => {
    const page = await visitConsole(browser, url, { hasAxe: true })
    for (const { path, text } of pagesOf(fleet)) {
      await goTo(page, path)
      await page.getByText(text).first().waitFor({ state: 'attached' })
      expect([path, await violationsOf(page)]).toEqual([path, []])
      await page.setViewportSize(PHONE)
      expect([path, await overflowOf(page)]).toEqual([path, 0])
      await page.setViewportSize(DESKTOP)
    }
  })

  it('of the sign-in has none either', async () => {
    const page = await visitConsole(browser, url, { isSignedOut: true, hasAxe: true, viewport: PHONE })
    await page.getByLabel('Token').waitFor()
    expect(await violationsOf(page)).toEqual([])
    expect(await overflowOf(page)).toBe(0)
  })

  it('of 1,000 accounts renders only the rows in sight, and every row while it scrolls', async () => {
    const page = await visitConsole(browser, url)
    const rows = page.locator('tbody tr[aria-rowindex]')
    await rows.first().waitFor()
    expect(await rows.count()).toBeLessThan(120)
    expect(await page.locator('table.fleet').getAttribute('aria-rowcount')).toBe(String(ACCOUNTS + 2))
    await page.evaluate('scrollTo(0, document.scrollingElement.scrollHeight)')
    await page.locator(`tr[aria-rowindex="${ACCOUNTS + 2}"]`).waitFor()
    await page.getByLabel('Search accounts').fill('Hotel 999')
    await rows.nth(1).waitFor({ state: 'detached' })
    await page.getByRole('link', { name: 'Hotel 999' }).waitFor()
  })
})
