/** The day of an operator: everything with a browser, nothing with a shell. */
import type { Page } from 'playwright-core'
import { describe, expect, it, vi } from 'vitest'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { canRunChromium } from '../support/chromium.ts'
import { CONSOLE_TOKEN, PASSWORD } from '../support/console.ts'
import { setUpConsole } from '../support/console-browser.ts'
import { startReceiver } from '../support/endpoints.ts'
import { load } from '../support/load.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'

/** Some hundred clicks, which take a multiple of 20 s on a busy machine. */
vi.setConfig({ testTimeout: 180_000 })

const platform = await startPlatform()

const publicUrl = 'https://oa.example.com'
const OWNER = 'naomi@example.com'
const COLLEAGUE = 'krit@example.com'
const REISSUED_SECRET = 'e'.repeat(32)

describe.runIf(canRunChromium('the day of an operator is'))('an operator without a shell', () => {
  const opened = setUpConsole(async () => null, {
    lineApiUrl: platform.url,
    verifier: verifierOn(platform, publicUrl),
    config: { publicUrl },
  })

  it('gets through a day with the console alone, and the activity log shows all of it with names', async () => {
    const page = await opened.visit({ isSignedOut: true })
    await signInWithToken(page)
    await addOrganization(page, 'Bakeries')
    await addOrganization(page, 'Hotels')
    await acceptInvitation(page, await invite(page, { email: OWNER, role: 'owner' }))
    await button(page, 'Sign out').click()
    await signIn(page, OWNER)

    const shops = Array.from({ length: 20 }, (_, index) => addShop(`Shop ${index + 1}`))
    const [, , , , broken] = shops as Array<(typeof shops)[number]>
    await applyFleetFile(page, shops)
    if (broken) broken.account.channelSecret = REISSUED_SECRET
    await replaceSecret(page, 'Shop 5', REISSUED_SECRET)
    await addAndTestEndpoint(page)
    await eraseByName(page, await nameSomebody('Mali Suda'))

    const link = await invite(page, { email: COLLEAGUE, role: 'manager', organization: 'Bakeries' })
    await load(
      opened.database,
      `insert into official_account (organization_id, name, oa_hash, tracking_key)
       select id, 'Hotel Aurora', 'aurora', 'aurora' from organization where name = 'Hotels'`,
      [],
    )
    const colleague = await opened.visit({
      path: new URL(link).pathname + new URL(link).hash,
      isSignedOut: true,
      expected: /403|404/,
    })
    await choosePassword(colleague)
    await seesOnlyBakeries(colleague)

    await showsTheDay(page)
  })

  const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name })
  const link = (page: Page, name: string) => page.getByRole('link', { name, exact: true })
  const openPage = (page: Page, name: string) =>
    page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).click()

  async function signInWithToken(page: Page): Promise<void> {
    await page.getByLabel('Token').fill(CONSOLE_TOKEN)
    await page.keyboard.press('Enter')
    await page.getByText('No official account yet').waitFor()
  }

  async function signIn(page: Page, email: string): Promise<void> {
    await page.getByLabel('Email address').fill(email)
    await page.getByLabel('Password').fill(PASSWORD)
    await page.keyboard.press('Enter')
    await link(page, `${email} Owner`).waitFor()
  }

  async function addOrganization(page: Page, name: string): Promise<void> {
    await openPage(page, 'Settings')
    await link(page, 'Organizations').click()
    await button(page, 'Add an organization').click()
    await page.getByRole('textbox', { name: 'Name' }).fill(name)
    await page.keyboard.press('Enter')
    await button(page, `Rename ${name}`).waitFor()
  }

  /** Returns the invitation link. */
  async function invite(
    page: Page,
    { email, role, organization }: { email: string; role: string; organization?: string },
  ): Promise<string> {
    await openPage(page, 'Settings')
    await link(page, 'Operators').click()
    await button(page, 'Add operator').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Email address').fill(email)
    await dialog.getByLabel('Role').selectOption(role)
    if (organization !== undefined) {
      await dialog.getByLabel('Organizations').selectOption('some')
      await dialog.getByLabel(organization).check()
    }
    await dialog.getByRole('button', { name: 'Add and create the invitation link' }).click()
    const shown = await dialog.getByText(`${opened.url}/invitation#`).textContent()
    await button(page, 'I have stored it').click()
    return shown ?? ''
  }

  async function acceptInvitation(page: Page, invitation: string): Promise<void> {
    await page.goto(invitation)
    await choosePassword(page)
  }

  async function choosePassword(page: Page): Promise<void> {
    await page.getByLabel('New password').fill(PASSWORD)
    await page.getByLabel('Repeat the password').fill(PASSWORD)
    await button(page, 'Set password and sign in').click()
    await page.getByRole('heading', { name: 'Fleet' }).waitFor()
  }

  function addShop(name: string) {
    const state = platform.addAccount(randomAccount(name))
    state.settings.testOrigin = opened.service.url
    state.settings.webhook = { endpoint: 'https://chat.example.com/line', active: true }
    addPeople(state, 3)
    return state
  }

  async function applyFleetFile(page: Page, shops: Array<ReturnType<typeof addShop>>): Promise<void> {
    const lines = shops.map(({ account: { displayName, channelId, channelSecret } }) =>
      ['Bakeries', displayName, channelId, channelSecret].join(','),
    )
    await openPage(page, 'Fleet')
    await link(page, 'Add accounts from a file').first().click()
    await page.getByLabel('Drop the CSV file here').setInputFiles({
      name: 'fleet.csv',
      mimeType: 'text/csv',
      buffer: Buffer.from(['organization,name,channel_id,channel_secret', ...lines].join('\n')),
    })
    await page.getByText('20 to add, 0 to update, 0 unchanged').waitFor()
    await page.getByRole('row', { name: /Shop 20/ }).waitFor()
    expect(await load(opened.database, 'select from official_account', [])).toEqual([])
    await button(page, 'Apply the file').click()
    await page.getByText('Verified accounts: 20. Imported followers: 60.').waitFor({ timeout: 60_000 })
  }

  async function replaceSecret(page: Page, name: string, secret: string): Promise<void> {
    await openPage(page, 'Fleet')
    await link(page, name).click()
    await button(page, 'Verify now').click()
    await link(page, 'Change: Channel secret').waitFor()
    await openPage(page, 'Fleet')
    await button(page, /^Broken/).click()
    await page.getByRole('row', { name: /Credentials rejected/ }).waitFor()
    await link(page, name).click()
    await link(page, 'Change: Channel secret').click()
    await page.locator('[name="channelSecret"]:focus').waitFor()
    await page.keyboard.type(secret)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name }).waitFor()
    const verified = page.waitForResponse((response) => response.url().endsWith('/verify'))
    await button(page, 'Verify now').click()
    expect((await verified).status()).toBe(200)
    await link(page, 'Change: Channel secret').waitFor({ state: 'detached' })
  }

  async function addAndTestEndpoint(page: Page): Promise<void> {
    const receiver = await startReceiver()
    await button(page, 'Add endpoint').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Format').selectOption('members')
    await dialog.getByLabel('URL').fill(receiver.url)
    await dialog.getByLabel('Name').fill('CRM')
    await dialog.getByLabel('Private network allowed').check()
    await dialog.getByRole('button', { name: 'Add endpoint' }).click()
    await dialog.getByText(/^whsec_/).waitFor()
    await button(page, 'I have stored it').click()
    await button(page, 'Send test').click()
    await dialog.getByText('"type":"endpoint.test"').waitFor()
    await page.keyboard.press('Escape')
  }

  /** Imported followers have no names before their profiles are fetched. */
  async function nameSomebody(name: string): Promise<string> {
    await load(
      opened.database,
      'update audience_member set display_name = $1 where id = (select min(id) from audience_member)',
      [name],
    )
    return name
  }

  async function eraseByName(page: Page, name: string): Promise<void> {
    const dialog = page.getByRole('dialog')
    await page.keyboard.press('/')
    await page.keyboard.type(name.slice(2))
    await page.keyboard.press('Enter')
    await link(page, name).click()
    await button(page, 'Erase this person…').click()
    await dialog.getByLabel(`Type ${name} to confirm`).fill(name)
    await dialog.getByRole('button', { name: 'Erase permanently' }).click()
    await page.waitForURL(/\/audience$/)
    expect(
      await load(opened.database, 'select from audience_member where display_name = $1', [name]),
    ).toEqual([])
  }

  async function seesOnlyBakeries(page: Page): Promise<void> {
    await link(page, 'Shop 5').waitFor()
    expect(await page.getByText('Hotel').count()).toBe(0)
    expect(await link(page, 'Activity').count()).toBe(0)
    await openPage(page, 'Settings')
    await page.getByText('Manager').first().waitFor()
    await page.getByText('Bakeries').first().waitFor()
    expect(await link(page, 'Operators').count()).toBe(0)
    await page.goto(`${opened.url}/activity`)
    await page.getByText('This page needs at least the role Owner.').waitFor()
    expect(await page.locator('ol.activity li').count()).toBe(0)
  }

  async function showAll(page: Page): Promise<void> {
    const rows = page.locator('ol.activity > li')
    const more = button(page, 'Show more')
    while ((await more.count()) > 0) {
      const shown = await rows.count()
      await more.click()
      await expect.poll(() => rows.count()).toBeGreaterThan(shown)
    }
  }

  async function showsTheDay(page: Page): Promise<void> {
    await openPage(page, 'Activity')
    const row = (...texts: string[]) =>
      texts
        .reduce((rows, hasText) => rows.filter({ hasText }), page.locator('ol.activity > li'))
        .first()
        .waitFor()
    await row('accepted the invitation', COLLEAGUE)
    await showAll(page)
    await row('CONSOLE_TOKEN added the organization Hotels')
    await row(`CONSOLE_TOKEN added the operator ${OWNER}`)
    await row(`${OWNER} accepted the invitation`)
    await row(`${OWNER} added the account Shop 20`)
    await row(`${OWNER} imported the followers of the account Shop 1`)
    await row(`${OWNER} changed the account Shop 5`, 'Channel secret replaced')
    await row(`${OWNER} verified the account Shop 5 with LINE`)
    await row(`${OWNER} added the endpoint`, 'to the account Shop 5')
    await row(`${OWNER} tested the endpoint`, 'of the account Shop 5')
    await row(`${OWNER} erased the person`)
    await row(`${OWNER} added the operator ${COLLEAGUE}`)
    const text = await page.getByRole('main').textContent()
    for (const hidden of [REISSUED_SECRET, 'Mali', PASSWORD]) expect(text).not.toContain(hidden)
  }
})
