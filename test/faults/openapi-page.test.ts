/** The documentation page in a browser. */
import { describe, expect, it } from 'vitest'
import { canRunChromium, launchChromium, visit } from '../support/chromium.ts'
import { openapi } from '../support/openapi.ts'
import { startApp } from '../support/service.ts'

describe.skipIf(!canRunChromium('the documentation page is'))('the documentation page', () => {
  it('shows every operation and webhook without errors', async () => {
    const service = await startApp(null)
    const browser = await launchChromium()
    try {
      const page = await visit(browser, `${service.url}/docs`)
      const errors: string[] = []
      page.on('console', (message) => message.type() === 'error' && errors.push(message.text()))
      await page.reload()
      const count = [openapi.paths, openapi.webhooks]
        .flatMap((items) => Object.values(items as object))
        .flatMap((methods) => Object.keys(methods)).length
      await expect.poll(() => page.locator('.opblock').count(), { timeout: 30_000 }).toBe(count)
      const webhook = page
        .locator('#operations-Outgoing_webhooks-onMemberUpdated, [id$=onMemberUpdated]')
        .first()
      await webhook.click()
      await expect.poll(() => webhook.innerText(), { timeout: 30_000 }).toContain('A member changed')
      expect(errors).toEqual([])
    } finally {
      await browser.close()
    }
  }, 90_000)
})
