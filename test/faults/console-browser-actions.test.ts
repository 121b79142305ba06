/** What operators do in the console, with the mouse and the keyboard, and what it changes. */
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { canRunChromium } from '../support/chromium.ts'
import { goTo, isReady, setUpConsole } from '../support/console-browser.ts'
import { addCredentials } from '../support/database.ts'
import { addCurableEvent, loadFleet } from '../support/fleet.ts'

describe.runIf(canRunChromium('the actions of the console are'))('an operator', () => {
  const opened = setUpConsole((empty) => loadFleet(empty, { accounts: 5, members: 120 }))
  const accountPath = () => `/accounts/${opened.loaded.tenant.accountId}`

  const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name })

  it('searches a member by each field, and returns to the result with the back button', async () => {
    const page = await opened.visit({ path: `${accountPath()}/audience` })
    const rows = page.locator('tbody tr')
    const findsOne = async (field: string, text: string) => {
      await page.getByLabel('Search by').selectOption({ label: field })
      await page.getByLabel('Search members').fill(text)
      await rows.nth(1).waitFor({ state: 'detached' })
      await page.getByRole('rowheader', { name: 'U77' }).waitFor()
    }
    await findsOne('External id', 'crm-77')
    await findsOne('User id', 'U77')
    await findsOne('Name', '健二 77')
    await page.getByRole('link', { name: '健二 77' }).click()
    await page.getByRole('heading', { name: '健二 77' }).waitFor()
    await page.goBack()
    await page.getByRole('rowheader', { name: 'U77' }).waitFor()
    await page.getByLabel('Search by').selectOption({ label: 'Tag' })
    await page.getByLabel('Search members').fill('vip')
    await page.getByLabel('Relationship').selectOption('following')
    await page.getByText('U3', { exact: true }).waitFor()
    await page.getByLabel('Search members').fill('nobody')
    await page.getByText('No member matches').waitFor()
  })

  it('reads all pages of an audience and of a timeline', async () => {
    const page = await opened.visit({ path: `${accountPath()}/audience` })
    const rows = page.locator('tbody tr')
    for (const count of [100, 120]) {
      await button(page, 'Show more').click()
      await rows.nth(count - 1).waitFor()
    }
    expect(await button(page, 'Show more').count()).toBe(0)
    await page.getByRole('link', { name: 'สมชาย 1', exact: true }).click()
    await button(page, 'Show more').click()
    await page.locator('.timeline li').nth(60).waitFor()
    expect(await page.locator('.timeline li').count()).toBe(61)
  })

  it('retries all events of a filter, and reads how each ended', async () => {
    await addCurableEvent(opened.database, opened.loaded.tenant, 'a fault of yesterday')
    await addCurableEvent(opened.database, opened.loaded.tenant, 'a fault of yesterday')
    const page = await opened.visit({ path: '/events?status=failed' })
    await page.getByLabel('Reason').selectOption('a fault of yesterday')
    await page.locator('tbody tr').nth(2).waitFor({ state: 'detached' })
    await button(page, 'Retry all matching events').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click()
    await page.getByText('2 of 2 · 2 applied · 0 failed again').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click()
    await page.getByText('No event matches the filter').waitFor()
  })

  it('pauses, resumes and retries an endpoint, and reads a delivery without its signature', async () => {
    const page = await opened.visit({ path: `/endpoints/${opened.loaded.endpointId}` })
    await button(page, 'Pause').click()
    await page.getByText('The endpoint was paused.').waitFor()
    await button(page, 'Resume').click()
    await page.getByText('The endpoint was resumed.').waitFor()
    await button(page, /Request and response/)
      .first()
      .click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('POST https://tool.example/webhook').waitFor()
    expect(await dialog.innerText()).toContain('x-line-signature: •••')
    await page.keyboard.press('Escape')
    await button(page, 'Retry all failed').click()
    await page.getByText('60 of 60').waitFor()
  })

  it('adds a client whose secret is shown once, gives it a key, and revokes both', async () => {
    const page = await opened.visit({ path: '/clients' })
    await button(page, 'Add a client').click()
    await page.getByLabel('Name').fill('New CRM')
    await page.keyboard.press('Enter')
    await page.getByText('It will not be shown again.').waitFor()
    const [clientId = '', secret = ''] = await page.getByRole('dialog').locator('code').allInnerTexts()
    expect(secret).not.toBe('')
    await button(page, 'I have stored it').click()
    await page.getByRole('heading', { name: 'New CRM' }).waitFor()
    await button(page, 'Add a key').click()
    const chooser = page.getByRole('combobox', { name: 'Account' })
    await chooser.fill(String(opened.loaded.tenant.accountId))
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').getByRole('button', { name: 'Add' }).click()
    const key = await page.getByRole('dialog').locator('code').innerText()
    const headers = { 'x-client-id': clientId, 'x-client-secret': secret, 'x-api-key': key }
    const list = () => opened.service.call('GET', '/api/audience?limit=1', { headers })
    expect((await list()).status).toBe(200)

    const holdsNone = async () => {
      await isReady(page)
      const shown =
        (await page.content()) +
        (await page.evaluate('JSON.stringify({ ...localStorage, ...sessionStorage, ...history.state })'))
      expect([secret, key].filter((text) => shown.includes(text))).toEqual([])
    }
    await page.goBack()
    await holdsNone()
    await page.goForward()
    await holdsNone()

    await button(page, /Revoke key/).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('cell', { name: 'revoked' }).waitFor()
    expect((await list()).json).toBeNull()
    await button(page, 'Revoke this client').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await button(page, 'Revoke this client').waitFor({ state: 'detached' })
    expect((await list()).status).toBe(401)
  })

  it('rotates the secret of a client by keyboard', async () => {
    const { accountId, organizationId } = opened.loaded.tenant
    const { clientRowId } = await addCredentials(opened.database, accountId, organizationId)
    const page = await opened.visit({ path: `/clients/${clientRowId}` })
    const dialog = page.getByRole('dialog')
    const press = async (name: string | RegExp) => {
      await button(page, name).focus()
      await page.keyboard.press('Enter')
      await dialog.waitFor()
    }
    await press('Rotate secret')
    await dialog.getByRole('button', { name: 'Rotate secret' }).press('Enter')
    await page.getByText('It will not be shown again.').waitFor()
    const secret = await dialog.locator('code').innerText()
    for (const key of ['Escape', 'Escape', 'Space', 'Enter']) await page.keyboard.press(key)
    expect(await dialog.locator('code').innerText()).toBe(secret)
    await dialog.getByRole('button', { name: 'I have stored it' }).press('Enter')
    await page.getByText('the previous secret is also valid').waitFor()
    expect(await page.content()).not.toContain(secret)
    await press('Finish rotation')
    await dialog.getByRole('button', { name: 'Finish rotation' }).press('Enter')
    await page.getByText('one secret is valid').waitFor()
  })

  it('never chooses an account of an earlier search', async () => {
    const page = await opened.visit({ path: '/endpoints' })
    const chooser = page.getByRole('combobox', { name: 'Account' })
    await chooser.click()
    await page.getByRole('option', { name: /Corner/ }).waitFor()
    await chooser.pressSequentially('Hotel')
    // The list still shows all accounts.
    await page.keyboard.press('Enter')
    await expect.poll(() => chooser.inputValue()).toMatch(/Hotel/)
  })

  it('follows what is committed, by its filters', async () => {
    const page = await opened.visit({ path: `/events?account=${opened.loaded.tenant.accountId}` })
    const rows = page.locator('table.events tbody tr')
    await button(page, 'Follow').click()
    const [first, second] = [randomUserId(), randomUserId()]
    await opened.service.deliver(opened.loaded.tenant, [lineEvent('postback', first)])
    await rows.filter({ hasText: first }).waitFor()
    await page.getByLabel('Kind').selectOption('follow')
    await rows.filter({ hasText: 'Button or menu tapped' }).first().waitFor({ state: 'detached' })
    await opened.service.deliver(opened.loaded.tenant, [
      lineEvent('postback', second),
      lineEvent('follow', second),
    ])
    await rows.filter({ hasText: second }).waitFor()
    expect(await rows.filter({ hasText: 'Button or menu tapped' }).count()).toBe(0)
    await button(page, 'Follow').click()
    await page.getByLabel('Kind').selectOption('')
    await page.getByLabel('User id').fill(first)
    await page.keyboard.press('Enter')
    await rows.nth(1).waitFor({ state: 'detached' })
    expect(await rows.innerText()).toContain('Button or menu tapped')
  })

  it('sets an event aside with a reason, and takes that back', async () => {
    const failure = 'a fault of last week'
    const id = await addCurableEvent(opened.database, opened.loaded.tenant, failure)
    const page = await opened.visit({ path: `/events/${id}` })
    await button(page, 'Set aside…').click()
    await page.getByLabel('Why').fill('a device of a test')
    await page.keyboard.press('Enter')
    await page.getByText('a device of a test').waitFor()
    await button(page, 'Count as failed again').click()
    await button(page, 'Set aside…').waitFor()
    await goTo(page, `/events?status=failed&reason=${encodeURIComponent(failure)}`)
    await button(page, 'Set all matching events aside…').click()
    await page.getByLabel('Why').fill('all of a test')
    await page.keyboard.press('Enter')
    await page.getByText('1 of 1').waitFor()
  })
})
