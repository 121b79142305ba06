/** The documentation page in a browser. */
import { expect, it, onTestFinished } from 'vitest'
import { canRunChromium, launchChromium, visit } from '../support/chromium.ts'
import { openapi } from '../support/openapi.ts'
import { startApp } from '../support/service.ts'

it.runIf(canRunChromium('the documentation page is'))(
  'the documentation page shows every operation and webhook without errors',
  async () => {
    const service = await startApp(null)
    const browser = await launchChromium()
    onTestFinished(() => browser.close())
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
  },
)
