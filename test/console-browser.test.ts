/** The console in a browser: sign-in, every page, and a name that is markup. */
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { updateAccount } from '../src/accounts/provisioning.ts'
import { addEndpoint } from '../src/endpoints/manage.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { canRunChromium, launchChromium, visit } from './support/chromium.ts'
import { CONSOLE_TOKEN, startConsole } from './support/console.ts'
import { setUpFile } from './support/service.ts'

const MARKUP = '<img src=x onerror="document.title=1">'

describe.skipIf(!canRunChromium('the console is'))('the console in Chromium', async () => {
  const { database, service, tenant } = await setUpFile()
  const { app, url } = await startConsole(database)
  const userId = randomUserId()
  let browser: Browser
  let endpointId: bigint | undefined
  beforeAll(async () => {
    browser = await launchChromium()
    await updateAccount(database, tenant.accountId, { name: MARKUP })
    await service.deliver(tenant, [lineEvent('follow', userId), textMessage(userId, MARKUP)])
    await database.query(`update audience_member set display_name = $1, tags = array[$1]`, [MARKUP])
    const endpoint = {
      accountId: tenant.accountId,
      name: MARKUP,
      url: 'https://tool.example/',
      format: 'line' as const,
    }
    const added = await addEndpoint(
      database,
      { ...endpoint, events: null, replies: false, allowPrivateNetwork: false },
      [],
    )
    endpointId = added?.id
    await database.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, failure, payload)
       values ($1, 'line', $2, gen_random_uuid(), now(), $2, $3)`,
      [tenant.accountId, MARKUP, JSON.stringify({ text: MARKUP })],
    )
  })
  afterAll(async () => {
    await browser.close()
    await app.close()
  })

  /** Reports what the page writes to the browser's console, such as violations of the Content-Security-Policy. */
  async function signIn(path = '/'): Promise<{ page: Page; messages: string[] }> {
    const page = await visit(browser, url + path)
    const messages: string[] = []
    page.on('console', (message) => messages.push(message.text()))
    await page.getByLabel('Token').fill(CONSOLE_TOKEN)
    await page.keyboard.press('Enter')
    await page.getByRole('navigation', { name: 'Pages' }).waitFor()
    return { page, messages }
  }

  it('says that a token is wrong, and accepts the right one by keyboard alone', async () => {
    const page = await visit(browser, url)
    await page.keyboard.type('wrong')
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('not the CONSOLE_TOKEN').waitFor()
    await page.keyboard.type(CONSOLE_TOKEN)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Fleet', level: 1 }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Token').waitFor()
  })

  it('shows every page without an error, and other people’s text as text', async () => {
    const { page, messages } = await signIn()
    const [event] = await database.query<{ id: bigint }>('select id from event where failure is not null')
    const paths = [
      ...['/', `/accounts/${tenant.accountId}`, `/audience/${tenant.accountId}`],
      ...[`/audience/${tenant.accountId}/${userId}`, '/events', `/events/${event?.id}`],
      ...['/endpoints', `/endpoints/${endpointId}`, '/live'],
    ]
    for (const path of paths) {
      await page.goto(url + path)
      await page.getByText(MARKUP).filter({ visible: true }).first().waitFor()
      expect(await page.title()).toContain('oa-audience console')
      expect(await page.locator('img').count()).toBe(0)
    }
    await page.goto(`${url}/nothing`)
    await page.getByRole('heading', { name: 'No such page' }).waitFor()
    expect(messages).toEqual([])
  })

  it('moves the focus to the heading and names the tab when a link is followed', async () => {
    const { page } = await signIn()
    await page.getByRole('link', { name: 'Clients' }).click()
    await page.getByRole('heading', { name: 'Clients', level: 1 }).waitFor()
    expect(await page.title()).toBe('Clients · oa-audience console')
    await page.locator('h1:focus').waitFor()
    await page.goBack()
    await page.getByRole('heading', { name: 'Fleet', level: 1 }).waitFor()
  })

  it('shows a new secret once', async () => {
    const { page } = await signIn('/clients')
    await page.getByRole('button', { name: 'Add a client' }).click()
    await page.getByLabel('Name').fill('CRM')
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog', { name: 'The client was added' })
    const secret = await dialog.getByText(/^secret_/).textContent()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.getByRole('link', { name: 'CRM' }).click()
    await page.getByRole('heading', { name: 'CRM' }).waitFor()
    expect(await page.content()).not.toContain(secret)
  })

  it('erases a person only after their name was typed', async () => {
    const other = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', other)])
    const { page } = await signIn(`/audience/${tenant.accountId}/${other}`)
    await page.getByRole('button', { name: 'Erase this person' }).click()
    const submit = page.getByRole('button', { name: 'Erase for ever' })
    expect(await submit.isDisabled()).toBe(true)
    await page.getByRole('dialog').getByRole('textbox').fill(other)
    await submit.click()
    await page.getByRole('heading', { name: 'The person was erased' }).waitFor()
    expect(await service.member(tenant, other)).toBeUndefined()
  })

  it('remembers the language', async () => {
    const { page } = await signIn()
    await page.getByLabel('Language').selectOption('ja')
    await page.getByRole('heading', { name: 'アカウント一覧' }).waitFor()
    await page.reload()
    await page.getByRole('heading', { name: 'アカウント一覧' }).waitFor()
    expect(await page.locator('html').getAttribute('lang')).toBe('ja')
  })
})
