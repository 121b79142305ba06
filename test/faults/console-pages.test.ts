/** Every page and dialog of the console in every language, in both schemes, on a desk and on a phone. */
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

  describe.each(['en-US', 'ja-JP', 'th-TH'])('in %s', (locale) => {
    it.each([
      { colorScheme: 'light' as const, viewport: DESKTOP },
      { colorScheme: 'dark' as const, viewport: DESKTOP },
      { colorScheme: 'light' as const, viewport: PHONE },
      { colorScheme: 'dark' as const, viewport: PHONE },
    ])('has no fault for assistive technology, $colorScheme at $viewport.width px', async (options) => {
      const page = await visitConsole(browser, url, { ...options, locale, hasAxe: true })
      for (const { path } of pagesOf(fleet)) {
        await goTo(page, path)
        expect([path, await violationsOf(page)]).toEqual([path, []])
        expect([path, await overflowOf(page)]).toEqual([path, 0])
        const text = await page.locator('body').innerText()
        expect([path, /undefined|\[object|NaN|Invalid Date/.exec(text)?.[0]]).toEqual([path, undefined])
      }
    })
  })

  it.each([DESKTOP, PHONE])('has dialogs without a fault at $width px', async (viewport) => {
    const page = await visitConsole(browser, url, { viewport, hasAxe: true })
    const { accountId } = fleet.tenant
    const dialogs: Array<[path: string, opener: string | RegExp]> = [
      ['/clients', 'Add a client'],
      [`/clients/${fleet.clientId}`, 'Add a key'],
      [`/clients/${fleet.clientId}`, 'Revoke this client'],
      ['/events', 'Retry all of this filter'],
      [`/endpoints/${fleet.endpointId}`, /Request and answer/],
      [`/audience/${accountId}/U1`, 'Erase this person…'],
    ]
    for (const [path, opener] of dialogs) {
      await goTo(page, path)
      const button = page.getByRole('button', { name: opener }).first()
      await button.focus()
      await page.keyboard.press('Enter')
      await page.getByRole('dialog').waitFor()
      expect([path, opener, await violationsOf(page)]).toEqual([path, opener, []])
      expect([path, opener, await overflowOf(page)]).toEqual([path, opener, 0])
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      expect([path, await button.and(page.locator(':focus')).count()]).toEqual([path, 1])
    }
  })
})
