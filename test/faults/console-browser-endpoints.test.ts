/** What operators do with endpoints in the console, without a shell. */
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { expectSound, PHONE, setUpConsole } from '../support/console-browser.ts'
import { addTenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'

describe.runIf(canRunChromium('endpoints in the console are'))('an operator', () => {
  const opened = setUpConsole(addTenant)

  const refused = { expected: /400|429/ }
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
  const stored = async (columns: string) =>
    (await opened.database.query(`select ${columns} from endpoint order by id desc limit 1`))[0]

  it('adds an endpoint by keyboard, corrects what is refused, and sees its secret once', async () => {
    const path = `/accounts/${opened.loaded.accountId}`
    const page = await opened.visit({ path, ...refused })
    const dialog = page.getByRole('dialog')
    await button(page, 'Add endpoint').focus()
    await page.keyboard.press('Enter')
    await dialog.getByLabel('Format').selectOption('members')
    await dialog.getByLabel('URL').fill('https://127.0.0.1/hook')
    await dialog.getByLabel('Name').fill('CRM')
    await dialog.getByLabel('All kinds').uncheck()
    await dialog.getByLabel('Member erased').check()
    await dialog.getByLabel('Name').press('Enter')
    await dialog.getByText('the address 127.0.0.1 is not public').waitFor()
    await page.locator('input[name="url"]:focus').waitFor()
    expect(await dialog.getByLabel('Name').inputValue()).toBe('CRM')
    await dialog.getByLabel('URL').fill('https://crm.example/hook')
    await page.keyboard.press('Enter')
    const secret = dialog.getByText(/^whsec_/)
    await secret.waitFor()
    expect(await stored('name, url, events, secret, channel_oa_id')).toEqual({
      name: 'CRM',
      url: 'https://crm.example/hook',
      events: ['member.created', 'member.erased'],
      secret: await secret.textContent(),
      channel_oa_id: opened.loaded.accountId,
    })
    await button(page, 'I have stored it').click()
    await page.getByRole('heading', { name: 'CRM' }).waitFor()
    expect(await page.getByText(/whsec_/).count()).toBe(0)
  })

  it('edits, tests, rotates and removes an endpoint on a phone, in the dark', async () => {
    const receiver = await startReceiver()
    receiver.answer = { status: 401, body: '<b>the signature</b> is wrong' }
    const [row] = await opened.database.query<{ id: bigint }>(
      `insert into endpoint (channel_oa_id, name, url, format, allow_private_network)
       values ($1, 'Tool', 'https://tool.example/hook?token=hidden', 'members', true) returning id`,
      [opened.loaded.accountId],
    )
    await opened.database.query(
      `insert into endpoint_delivery (channel_oa_id, endpoint_id, type, member_id) values ($1, $2, 'member.updated', 1)`,
      [opened.loaded.accountId, row?.id],
    )
    const page = await opened.visit({
      path: `/endpoints/${row?.id}`,
      ...{ viewport: PHONE, colorScheme: 'dark', hasAxe: true, ...refused },
    })
    const dialog = page.getByRole('dialog')
    await expectSound(page, 'page')

    await button(page, 'Edit').click()
    expect(await dialog.getByLabel('URL').inputValue()).toBe('')
    await dialog.getByLabel('Name').fill('Chat')
    await button(page, 'Save').click()
    await page.getByText('The changes were saved.').waitFor()
    expect(await stored('name, url')).toEqual({ name: 'Chat', url: 'https://tool.example/hook?token=hidden' })
    await button(page, 'Edit').click()
    await dialog.getByLabel('URL').fill(receiver.url)
    await button(page, 'Save').click()
    await dialog.waitFor({ state: 'detached' })

    await button(page, 'Send test').click()
    await dialog.getByText('the signature').waitFor()
    await dialog.getByText('webhook-signature: v1,').waitFor()
    await dialog.getByText('"type":"endpoint.test"').waitFor()
    expect(await dialog.locator('b').count()).toBe(0)
    await dialog.getByRole('button', { name: 'Test again' }).click()
    await dialog.getByText('was tested a moment ago').waitFor()
    await page.keyboard.press('Escape')

    await button(page, 'Rotate secret').click()
    await dialog.getByRole('button', { name: 'Rotate secret' }).click()
    await dialog.getByText(/^whsec_/).waitFor()
    expect(await dialog.getByRole('button', { name: 'Close' }).count()).toBe(0)
    await dialog.getByRole('button', { name: 'I have stored it' }).click()
    await button(page, 'Discard the new secret').click()
    await expectSound(page, 'discard')
    await dialog.getByRole('button', { name: 'Discard the new secret' }).click()
    await page.getByText('The new secret was discarded.').waitFor()
    await button(page, 'Remove…').click()
    const submit = dialog.getByRole('button', { name: 'Remove permanently' })
    expect(await submit.isDisabled()).toBe(true)
    await dialog.getByText('Deliveries that are lost: 1').waitFor()
    await dialog.getByLabel('Type Chat to confirm').fill('Chat')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Endpoints' }).waitFor()
    expect(await opened.database.query('select from endpoint where id = $1', [row?.id])).toEqual([])
    expect(await opened.database.query('select from endpoint_delivery')).toEqual([])
  })
})
