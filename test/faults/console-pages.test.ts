/** Every page and dialog of the console at 10,000 accounts: in every language, in both schemes, on a desk and on a phone. */
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import {
  DESKTOP,
  expectSound,
  goTo,
  overflowOf,
  PHONE,
  pagesOf,
  setUpConsole,
} from '../support/console-browser.ts'
import { loadFleet } from '../support/fleet.ts'

const ACCOUNTS = 10_000
const MEMBERS = 5_000

describe.runIf(canRunChromium('the pages of the console are'))('every page', () => {
  const opened = setUpConsole((database) => loadFleet(database, { accounts: ACCOUNTS, members: MEMBERS }))

  it('shows at every width what is wrong, with which account, and how an endpoint answered', async () => {
    const page = await opened.visit()
    const { tenant, endpointId } = opened.loaded
    for (const width of [375, 719, 720, 1180]) {
      await page.setViewportSize({ width, height: 900 })
      for (const [path, text] of [
        ['/', 'No channel secret'],
        [`/accounts/${tenant.accountId}`, 'Failed events'],
        ['/events', 'source.userId is not a text'],
        ['/events', 'test'],
        ['/endpoints', 'nothing sent yet'],
        [`/endpoints/${endpointId}`, 'the receiver is being replaced'],
      ] as const) {
        await goTo(page, path)
        const shown = page.locator('main').getByText(text).filter({ visible: true })
        await shown.first().waitFor()
        expect([width, path, await overflowOf(page)]).toEqual([width, path, 0])
      }
    }
  })

  it('of an account draws its charts, and says so without data', async () => {
    const page = await opened.visit({ path: `/accounts/${opened.loaded.tenant.accountId}` })
    await expect.poll(() => page.locator('canvas').count()).toBe(2)
    await page.getByText('Show the numbers').last().click()
    expect(await page.locator('figure.chart').last().getByRole('rowheader').count()).toBe(30)
    // Every thirteenth account has no deliveries.
    await goTo(page, '/accounts/13')
    await page.getByText('No deliveries in the last 7 days').waitFor()
  })

  it('of 10,000 accounts shows the worst 200, more of them on request, and each account that is searched', async () => {
    const page = await opened.visit()
    const rows = page.locator('table.fleet tbody tr')
    await rows.nth(199).locator('svg.spark').first().waitFor()
    expect(await rows.count()).toBe(200)
    await page.getByRole('button', { name: 'Show more' }).click()
    await rows.nth(399).locator('svg.spark').first().waitFor()
    expect(await rows.count()).toBe(400)
    await page.getByLabel('Search accounts').fill('Hotel 9999')
    await rows.nth(1).waitFor({ state: 'detached' })
    await page.getByRole('link', { name: 'Hotel 9999' }).waitFor()
  })

  // Contrast depends on the scheme, overflow on width and language, and the other faults on neither.
  it.each([
    { locale: 'en-US', colorScheme: 'light' as const, viewport: DESKTOP },
    { locale: 'th-TH', colorScheme: 'dark' as const, viewport: PHONE },
  ])(
    'has no missing value, and no fault for assistive technology in $locale, $colorScheme at $viewport.width px',
    async (options) => {
      const page = await opened.visit({ ...options, hasAxe: true })
      for (const { path, text } of pagesOf(opened.loaded)) {
        await goTo(page, path)
        if (options.locale === 'en-US') await page.getByText(text).first().waitFor({ state: 'attached' })
        await expectSound(page, path)
        const shown = await page.locator('body').innerText()
        expect([path, /undefined|\[object|NaN|Invalid Date/.exec(shown)?.[0]]).toEqual([path, undefined])
      }
    },
  )

  it.each(['en-US', 'ja-JP', 'zh-TW'])('fits a phone in %s', async (locale) => {
    const page = await opened.visit({ locale, viewport: PHONE })
    for (const { path } of pagesOf(opened.loaded)) {
      await goTo(page, path)
      expect([path, await overflowOf(page)]).toEqual([path, 0])
    }
  })

  it('has dialogs without a fault on a phone', async () => {
    const page = await opened.visit({ viewport: PHONE, hasAxe: true })
    const { tenant, clientId, endpointId } = opened.loaded
    const dialogs: Array<[path: string, opener: string | RegExp]> = [
      ['/clients', 'Add a client'],
      ['/settings/operators', 'Add operator'],
      ['/settings/notifications', 'Add channel'],
      ['/settings/organizations', 'Add an organization'],
      [`/clients/${clientId}`, 'Add a key'],
      [`/clients/${clientId}`, 'Revoke this client'],
      [`/clients/${clientId}`, 'Rotate secret'],
      ['/events?status=failed', 'Retry all matching events'],
      ['/events?status=failed', 'Set all matching events aside…'],
      [`/endpoints/${endpointId}`, /Request and response/],
      [`/endpoints/${endpointId}`, 'Edit'],
      [`/endpoints/${endpointId}`, 'Send test'],
      [`/endpoints/${endpointId}`, 'Remove…'],
      [`/endpoints/${endpointId}`, /Replay .*…/],
      ['/endpoints', 'Add endpoint'],
      [`/accounts/${tenant.accountId}`, 'Add endpoint'],
      [`/accounts/${tenant.accountId}`, 'Export events…'],
      [`/accounts/${tenant.accountId}/audience/U1`, 'Erase this person…'],
    ]
    for (const [path, opener] of dialogs) {
      await goTo(page, path)
      const button = page.getByRole('button', { name: opener }).first()
      await button.focus()
      await page.keyboard.press('Enter')
      await page.getByRole('dialog').waitFor()
      await expectSound(page, `${path} ${opener}`)
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      expect([path, await button.and(page.locator(':focus')).count()]).toEqual([path, 1])
    }
  })
})
