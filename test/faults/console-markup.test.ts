/** Hundreds of hostile texts in each list of the console. */
import type { Browser, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import type { PostgresDatabase } from '../../src/postgres/postgres-database.ts'
import { canRunChromium, launchChromium } from '../support/chromium.ts'
import { startConsole } from '../support/console.ts'
import { openWatched } from '../support/console-injected.ts'
import { createTestDatabase, type Tenant } from '../support/database.ts'
import { loadMarkup, SHAPES } from '../support/markup.ts'

describe.runIf(canRunChromium('hostile texts in the console are'))('the console', () => {
  let browser: Browser
  let database: PostgresDatabase
  let tenant: Tenant
  let url: string
  beforeAll(async () => {
    ;({ database } = await createTestDatabase())
    tenant = await loadMarkup(database)
    const started = await startConsole(database)
    url = started.url
    browser = await launchChromium()
    return async () => {
      await browser.close()
      await started.app.close()
      await database.close()
    }
  })

  /** Loads all pages of a list. */
  async function showAll(page: Page, rows: string): Promise<void> {
    const more = page.getByRole('button', { name: 'Show more' }).first()
    for (let count = 50; count < SHAPES.length; count += 50) {
      await page
        .locator(rows)
        .nth(count - 1)
        .waitFor({ state: 'attached' })
      await more.click()
    }
    await page
      .locator(rows)
      .nth(SHAPES.length - 1)
      .waitFor({ state: 'attached' })
  }

  it('shows hundreds of hostile texts in the table of the fleet', async () => {
    const { page, expectHarmless } = await openWatched(browser, url, '/')
    await page.locator('table.fleet tbody tr').first().waitFor()
    for (let position = 0; position < SHAPES.length * 60; position += 3_000) {
      await page.evaluate(`scrollTo(0, ${position})`)
      await page.evaluate(
        'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))',
      )
      await expectHarmless()
    }
  })

  it.each(['/audience/:account', '/events', '/endpoints', '/clients'])(
    'shows hundreds of them in %s',
    async (path) => {
      const { page, expectHarmless } = await openWatched(
        browser,
        url,
        path.replace(':account', String(tenant.accountId)),
      )
      await showAll(page, 'main tbody tr')
      await expectHarmless()
      const text = await page.locator('main').innerText()
      expect(SHAPES.slice(0, 40).filter((shape) => !text.includes(shape.trim()))).toEqual([])
    },
  )
})
