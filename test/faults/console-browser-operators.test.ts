/** Operators in the console: sign-in with a password, invitations, settings, the activity log, and what a viewer can do. */
import { randomUUID } from 'node:crypto'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { commandActor } from '../../src/operators/actor.ts'
import { canRunChromium } from '../support/chromium.ts'
import { addSignedIn, CONSOLE_TOKEN, PASSWORD } from '../support/console.ts'
import { expectSound, goTo, isReady, PHONE, pagesOf, setUpConsole } from '../support/console-browser.ts'
import { loadFleet } from '../support/fleet.ts'
import { load } from '../support/load.ts'
import { addOperator } from '../support/operations.ts'

const OWNER = 'ann@example.com'
const REFUSED = /status of 40[01]/
/** Pages that a viewer may not open, because they only change something, or because only owners read them. */
const NOT_FOR_VIEWERS = /^\/(accounts\/(new|file)|accounts\/\d+\/(edit|import)|activity|settings\/operators)$/
/** Every button and form-like control that a viewer finds, without the count at its end. */
const FOR_VIEWERS = [
  ...['All', 'Broken', 'Degraded', 'Quiet', 'OK', 'Status', 'Account', 'Deliveries, 24 h', 'Last delivery'],
  ...['Followers, 30 days', '7 days', 'Failed events', 'Pending', 'Quota'],
  ...['Failed events', 'Copy: Webhook URL', 'Copy: Tracking key (public)', 'Export…'],
  ...['Copy: User id', 'Show more', 'Copy: Content as received', 'Failed', 'Pending', 'Follow'],
  ...[
    'Accepted',
    'Show: Request and response, Delivery',
    'Request and response',
    'Export events…',
    'Export all stored data…',
    'Make link…',
    'Condition…',
  ],
  ...['Check public address', 'Print', 'Accounts', 'Organizations', 'Name', 'Net, change'],
  ...['New followers', 'Returns', 'Blocks', 'Net', 'Followers', 'Blocked within 7 days', 'Still following'],
  'Active in 30 days',
]

describe.runIf(canRunChromium('the pages of operators are'))('an operator', () => {
  const opened = setUpConsole((database) => loadFleet(database, { accounts: 3, members: 3 }))
  beforeAll(() => addSignedIn(opened, { email: OWNER, role: 'owner' }).then(() => undefined))

  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
  const invite = async (email: string) =>
    (
      await addOperator(opened.database, commandActor(), email, {
        name: null,
        role: 'viewer',
        organizationIds: null,
      })
    ).invitation

  it('signs in with address and password by the keyboard alone, or with the token', async () => {
    const options = { isSignedOut: true, hasAxe: true, viewport: PHONE, expected: REFUSED }
    const page = await opened.visit({ path: '/clients', ...options })
    await page.locator('[name=email]:focus').waitFor()
    await expectSound(page, 'form')
    await page.keyboard.type(OWNER)
    await page.keyboard.press('Tab')
    await page.keyboard.type('not this one')
    await page.keyboard.press('Enter')
    await page.getByText('The email address or the password is wrong.').waitFor()
    await page.locator('[name=secret]:focus').waitFor()
    expect(await page.getByLabel('Email address').inputValue()).toBe(OWNER)
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Clients' }).waitFor()
    await page.getByRole('link', { name: `${OWNER} Owner` }).waitFor()

    await button(page, 'Sign out').click()
    await button(page, 'Sign in with the CONSOLE_TOKEN instead').click()
    await page.getByLabel('Token').fill(CONSOLE_TOKEN)
    await button(page, 'Sign in').click()
    await page.getByRole('link', { name: 'CONSOLE_TOKEN Owner' }).waitFor()
  })

  it('joins with an invitation once, with a password that is repeated and hard to guess', async () => {
    const path = `/invitation#${await invite('joins@example.com')}`
    const options = { isSignedOut: true, hasAxe: true, viewport: PHONE, expected: /status of 40[04]/ }
    const page = await opened.visit({ path, ...options })
    await page.getByText('You sign in as joins@example.com.').waitFor()
    await expectSound(page, 'form')
    const choose = async (password: string, repeated: string) => {
      await page.locator('[name=password]').fill(password)
      await page.locator('[name=repeated]').fill(repeated)
      await page.keyboard.press('Enter')
    }
    await choose(PASSWORD, 'another')
    await page.getByText('The two passwords differ.').waitFor()
    await choose('password1234', 'password1234')
    await page.getByText('This password is too short or easy to guess.').waitFor()
    await choose(PASSWORD, PASSWORD)
    await page.getByRole('heading', { name: 'Fleet' }).waitFor()
    expect(page.url()).not.toContain('#')
    await page.getByRole('link', { name: 'joins@example.com Viewer' }).waitFor()

    await page.goto(opened.url)
    await page.goto(opened.url + path)
    await page.getByText('This invitation is no longer valid').waitFor()
  })

  it('adds a colleague, whose link is shown once, changes the role and disables the colleague', async () => {
    // A retry of the test adds another one.
    const email = `new-${randomUUID()}@example.com`
    const page = await opened.visit({
      path: '/settings/operators',
      hasAxe: true,
      expected: REFUSED,
    })
    await button(page, 'Add operator').focus()
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog')
    await dialog.waitFor()
    await page.keyboard.type(OWNER)
    await page.keyboard.press('Enter')
    await dialog.locator('[name=email][aria-invalid=true]').waitFor()
    await dialog.getByLabel('Email address').fill(email)
    await dialog.getByLabel('Organizations').selectOption('Only these organizations')
    await dialog.getByRole('checkbox').first().check()
    await button(page, 'Add and create the invitation link').click()
    const link = dialog.locator('code', { hasText: `${opened.url}/invitation#` })
    const address = (await link.textContent()) ?? ''
    await page.keyboard.press('Escape')
    expect(await link.textContent()).toBe(address)
    await button(page, 'I have stored it').click()
    await dialog.waitFor({ state: 'detached' })
    expect(await page.content()).not.toContain(address.split('#')[1])

    const row = page.getByRole('row', { name: email })
    await row.getByText('invited, has not joined yet').waitFor()
    await row.getByRole('button', { name: 'Edit' }).click()
    await dialog.getByLabel('Role').selectOption('Manager')
    await button(page, 'Save').click()
    await row.getByRole('cell', { name: 'Manager', exact: true }).waitFor()
    await row.getByRole('button', { name: 'Disable' }).click()
    await row.getByText('disabled', { exact: true }).waitFor()
    await row.getByRole('button', { name: 'Enable' }).waitFor()
    // The longest line about an operator.
    await opened.database.query(
      `update operator set status = 'active', invitation_expires_at = null where email = $1`,
      [email],
    )
    await page.setViewportSize({ width: 390, height: 844 })
    await page.reload()
    await row.getByText('no password: signs in at the proxy').waitFor()
    const box = await row.getByRole('button', { name: 'Disable' }).boundingBox()
    expect((box?.x ?? 390) + (box?.width ?? 0)).toBeLessThan(390)
  })

  it('finds changes by operator, object and day, and reads them on the page of the object', async () => {
    const { endpointId } = opened.loaded
    const manager = await addSignedIn(opened, { email: 'max@example.com', role: 'manager' })
    await manager.post(`/api/endpoints/${endpointId}/pause`)
    const page = await opened.visit({ path: '/activity', hasAxe: true })
    const rows = page.locator('.activity > li')
    const filter = (name: string) => page.getByRole('combobox', { name, exact: true })
    const sentence = `max@example.com paused the endpoint Chat tool of the account test`
    await rows.getByText(sentence).first().waitFor()
    await filter('Who').selectOption('max@example.com')
    await filter('Changes of').selectOption('Endpoints')
    await expect.poll(() => rows.count()).toBe(1)
    await page.getByLabel('To', { exact: true }).fill('2020-01-01')
    await page.getByText('No change matches').waitFor()
    await page.reload()
    await page.getByText('No change matches').waitFor()
    await page.getByLabel('To', { exact: true }).fill('')
    await rows.getByRole('link', { name: 'Chat tool' }).click()
    await page.getByRole('heading', { name: 'Chat tool' }).waitFor()
    await page.locator('main').getByRole('link', { name: 'Activity', exact: true }).click()
    await page.waitForURL('**/activity/of?kind=endpoint&id=*')
    await rows.filter({ hasText: 'max@example.com' }).waitFor()
    await page.getByRole('link', { name: 'Chat tool' }).first().waitFor()
    await manager.post(`/api/endpoints/${endpointId}/resume`)
  })

  it('who is a viewer sees the data, the names of the organizations, and nothing that changes something', async () => {
    const [organization] = await load<{ id: bigint; name: string }>(
      opened.database,
      'select id, name from organization order by id limit 1',
      [],
    )
    const organizationIds = [organization?.id as bigint]
    const operator = await addSignedIn(opened, { role: 'viewer', organizationIds })
    const page = await opened.visit({ operator, expected: /status of 404/ })
    const controls = page
      .locator('main button, main a.button:not(nav a), main form, main input[type=file]')
      .filter({ visible: true })
    const changing: string[] = []
    for (const { path } of pagesOf(opened.loaded)) {
      await goTo(page, path)
      const hasHeading = async (name: string) => (await page.getByRole('heading', { name }).count()) === 1
      const refusal = [await hasHeading('Not allowed'), await hasHeading('Page not found')]
      expect([path, ...refusal]).toEqual([path, NOT_FOR_VIEWERS.test(path), path === '/nothing'])
      for (const control of await controls.all()) {
        const name = (await control.getAttribute('aria-label')) ?? (await control.innerText())
        const shown = name
          .trim()
          .replace(/\s+/g, ' ')
          .replace(/,? \d+$/, '')
        if (!FOR_VIEWERS.includes(shown) && !shown.startsWith('Download ')) changing.push(`${path}: ${shown}`)
      }
    }
    expect(changing).toEqual([])
    await goTo(page, '/activity')
    await page.getByText('Your role is Viewer. This page needs at least the role Owner.').waitFor()
    await goTo(page, '/settings')
    await page.getByText(organization?.name as string).waitFor()
    await isReady(page)
  })
})
