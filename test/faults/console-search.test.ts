/** The search box on every page and the page of its results, as a person uses them. */
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { lineEvent, textMessage, ulid } from '../../tools/simulator/events.ts'
import { canRunChromium } from '../support/chromium.ts'
import { isReady, setUpConsole } from '../support/console-browser.ts'
import { addTenant } from '../support/database.ts'
import { loadFleet } from '../support/fleet.ts'
import { load } from '../support/load.ts'
import { startApp } from '../support/service.ts'

const eventId = ulid(Date.now())

describe.runIf(canRunChromium('the search of the console is'))('an operator who searches', () => {
  const opened = setUpConsole(async (empty) => {
    const loaded = await loadFleet(empty, { accounts: 5, members: 50 })
    const second = await addTenant(empty)
    const service = await startApp(empty)
    await service.deliver(second, [lineEvent('follow', 'U1')])
    await service.deliver(loaded.tenant, [textMessage('U1', 'hello', { webhookEventId: eventId })])
    await service.app.close()
    await load(empty, `update official_account set name = 'Second shop' where id = $1`, [second.accountId])
    return loaded
  })

  const field = (page: Page) => page.getByRole('searchbox', { name: 'Search everything' })
  const focused = (page: Page) => page.evaluate('document.activeElement.textContent')

  it('needs only the keyboard, from any page to the member in either account', async () => {
    const page = await opened.visit({ path: '/endpoints' })
    await page.keyboard.press('/')
    expect(await field(page).and(page.locator(':focus')).count()).toBe(1)
    await page.keyboard.type('crm-1')
    await page.keyboard.press('Enter')
    await page.waitForURL((address) => address.searchParams.get('q') === 'crm-1')
    await isReady(page)
    expect(await focused(page)).toBe('Search')
    const rows = page.getByRole('table').getByRole('row')
    await rows.nth(2).waitFor()
    expect(await rows.count()).toBe(3)
    expect(await rows.nth(1).textContent()).toContain('crm-1')
    expect(await rows.nth(2).textContent()).toContain('Second shop')
    for (let steps = 0; (await focused(page)) !== 'สมชาย 1'; steps += 1) {
      expect(steps).toBeLessThan(10)
      await page.keyboard.press('Tab')
    }
    await page.keyboard.press('Enter')
    await page.waitForURL(`**/accounts/${opened.loaded.tenant.accountId}/audience/U1`)
    expect(await field(page).inputValue()).toBe('')
    await page.goBack()
    await rows.nth(2).waitFor()
    expect(await field(page).inputValue()).toBe('crm-1')
  })

  it('can type the shortcut into a field, and beside a dialog it does nothing', async () => {
    const page = await opened.visit({ path: '/clients' })
    await page.keyboard.press('/')
    await page.keyboard.type('a/b')
    expect(await field(page).inputValue()).toBe('a/b')
    await page.getByRole('button', { name: 'Add a client' }).click()
    await page.getByRole('dialog').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).focus()
    await page.keyboard.press('/')
    expect(await focused(page)).toBe('Cancel')
  })

  it('finds the event, its person and its account by the webhook event id', async () => {
    const page = await opened.visit({ path: `/search?q=${eventId}` })
    await page.getByRole('link', { name: 'Find the event' }).click()
    const row = page.getByRole('table').getByRole('row').nth(1)
    await row.waitFor()
    expect(await row.textContent()).toContain('สมชาย')
    await row.getByRole('link', { name: 'message' }).click()
    await page.getByText('webhookEventId').waitFor()
  })

  it('reads what to do without a text, with a short one, and with too much found', async () => {
    const page = await opened.visit({ path: '/search', expected: /400/ })
    await page.getByText('Search people, accounts and events').waitFor()
    await field(page).press('Enter')
    expect(new URL(page.url()).search).toBe('')
    await field(page).fill('!')
    await field(page).press('Enter')
    await page.getByText('A name needs at least two characters').waitFor()
    await field(page).fill('Ann')
    await page.route('**/api/search?*', async (route) => {
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...(await response.json()), people: [], isComplete: false } })
    })
    await field(page).press('Enter')
    await page.getByText('Not all accounts were searched').waitFor()
    await page.getByText('Nothing was found so far').waitFor()
    await page.getByRole('combobox', { name: 'Search in one account' }).fill('test')
    await page.getByRole('listbox').getByRole('option').first().waitFor()
    await page.keyboard.press('Enter')
    await page.waitForURL('**/audience?q=Ann')
    await page.goto(`${opened.url}/search?q=${'x'.repeat(300)}`)
    await page.getByRole('alert').waitFor()
  })
})
