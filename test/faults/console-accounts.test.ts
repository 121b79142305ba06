/** How an operator adds accounts and repairs them in the console, without a shell. */
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { canRunChromium } from '../support/chromium.ts'
import { setUpConsole } from '../support/console-browser.ts'
import { load } from '../support/load.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'

const publicUrl = 'https://oa.example.com'
const OTHER_TOOL = 'https://chat.example.com/webhooks/line/1'

describe.runIf(canRunChromium('the forms of accounts are'))('an operator without a shell', async () => {
  const platform = await startPlatform()
  const opened = setUpConsole(async () => null, {
    lineApiUrl: platform.url,
    verifier: verifierOn(platform, publicUrl),
    config: { publicUrl },
  })

  const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name })
  const link = (page: Page, name: string) => page.getByRole('link', { name, exact: true })
  const accountOf = async (name: string) =>
    (
      await load<{ id: bigint }>(opened.database, 'select id from official_account where name = $1', [name])
    )[0]?.id

  const addPlatformAccount = (name: string) => {
    const state = platform.addAccount(randomAccount(name))
    state.settings.testOrigin = opened.service.url
    state.settings.webhook = { endpoint: OTHER_TOOL, active: true }
    addPeople(state, 3)
    return state
  }

  it('adds the first account, keeps what was typed after a refusal, and repairs its secret', async () => {
    const { account, settings } = addPlatformAccount('Corner Bakery')
    const page = await opened.visit({ expected: /400 \(Bad Request\)/ })
    await page.getByText('No official account yet').waitFor()
    await link(page, 'Add an account').click()
    await page.getByLabel('Name of the new organization').fill('Bakeries')
    await page.getByLabel('Name', { exact: true }).fill('Corner Bakery')
    await page.getByLabel('Channel id', { exact: true }).fill('0815')
    await page.getByLabel('Channel secret').fill('d'.repeat(32))
    await button(page, 'Add the account').click()
    await page.getByText('must be decimal digits').waitFor()
    await page.locator('[name="channelId"]:focus').waitFor()
    expect(await page.getByLabel('Channel secret').inputValue()).toBe('d'.repeat(32))
    await page.getByLabel('Channel id', { exact: true }).fill(account.channelId)
    await page.keyboard.press('Enter')
    await page.getByText('LINE refuses this channel id and secret').first().waitFor()
    expect(await load(opened.database, 'select from official_account', [])).toEqual([])
    await page.getByLabel('Channel secret').fill(account.channelSecret)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Corner Bakery' }).waitFor()
    expect(await load(opened.database, 'select from organization', [])).toHaveLength(1)
    const id = await accountOf('Corner Bakery')
    await page.getByText(`${publicUrl}/api/line/${id}`).waitFor()
    await page.getByText('Support chat and web tracking').click()
    await button(page, 'New callback URL').click()
    await page.getByRole('dialog').getByRole('button', { name: 'New callback URL' }).click()
    await page.getByText(/api\/mbox\/callback\//).waitFor()
    await page.keyboard.press('Escape')

    // Somebody issues another secret, so LINE refuses the stored one, and the problem has a link to the field.
    account.channelSecret = randomAccount('').channelSecret
    await button(page, 'Verify with a test delivery').click()
    await link(page, 'Change: Channel secret').click()
    await page.locator('[name="channelSecret"]:focus').waitFor()
    await page.keyboard.type(account.channelSecret)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Corner Bakery' }).waitFor()
    await page.getByText('Webhook URL points to another service').waitFor()
    await page.getByText('Also, probably for the same reason:').waitFor()

    // The webhook belongs to another tool, which the dialog says before it replaces the URL.
    await page
      .locator('.problem-card')
      .getByRole('button', { name: 'Point the webhook here' })
      .first()
      .click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText(OTHER_TOOL).waitFor()
    expect(settings.webhook?.endpoint).toBe(OTHER_TOOL)
    await dialog.getByRole('button', { name: 'Set the webhook URL' }).click()
    await dialog.getByText('LINE has accepted the URL').waitFor()
    expect(settings.webhook?.endpoint).toBe(`${publicUrl}/api/line/${id}`)
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    settings.webhook = { endpoint: `${publicUrl}/api/line/${id}`, active: true }
    await button(page, 'Verify with a test delivery').last().click()
    await page.getByText('Last verified').waitFor()
    await page.getByText('4 of 5 proven').waitFor()
    await button(page, 'Prove redelivery…').click()
    await button(page, 'Refuse the next delivery once').click()
    await dialog.getByText('is stored and refused once').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.getByText('A proof is armed').waitFor()
    await button(page, 'Import followers').last().click()
    await page.locator('.job', { hasText: 'done' }).waitFor()
    expect(
      await load(opened.database, 'select from audience_member where channel_oa_id = $1', [id]),
    ).toHaveLength(3)

    await button(page, 'Remove the account…').click()
    const submit = dialog.getByRole('button', { name: 'Remove permanently' })
    expect(await submit.isDisabled()).toBe(true)
    await dialog.getByLabel('Type Corner Bakery to confirm').fill('Corner Bakery')
    await page.keyboard.press('Enter')
    await dialog.locator('.job', { hasText: 'done' }).waitFor()
    expect(await accountOf('Corner Bakery')).toBeUndefined()
  })

  it('adds accounts from a file, after LINE refused one of its secrets', async () => {
    const fleet = [1, 2, 3].map((no) => addPlatformAccount(`Shop ${no}`))
    const lines = fleet.map(({ account: { displayName, channelId, channelSecret } }) =>
      ['Bakeries', displayName, channelId, channelSecret].join(','),
    )
    const wrong = 'e'.repeat(32)
    const csv = (rows: string[]) => ({
      name: 'fleet.csv',
      mimeType: 'text/csv',
      buffer: Buffer.from(['organization,name,channel_id,channel_secret', ...rows].join('\n')),
    })
    const page = await opened.visit({ path: '/accounts/file', expected: /400 \(Bad Request\)/ })
    const input = page.getByLabel('Drop the CSV file here')
    await input.setInputFiles(
      csv(lines.map((line, i) => (i === 2 ? line.replace('Bakeries', 'Baker') : line))),
    )
    await page.getByRole('cell', { name: 'no organization has this id or name.' }).waitFor()
    await page.getByRole('cell', { name: '4', exact: true }).waitFor()
    await input.setInputFiles(csv(lines.map((line, i) => (i === 1 ? line.replace(/[^,]+$/, wrong) : line))))
    await page.getByText('3 to add, 0 to update, 0 unchanged').waitFor()
    expect(await page.content()).not.toContain(wrong)
    await button(page, 'Apply the file').click()
    await page.getByText('line 3, column channel_secret: LINE refuses').waitFor()
    expect(await accountOf('Shop 1')).toBeUndefined()
    await page.getByLabel('Store without asking LINE').check()
    await button(page, 'Apply the file').click()
    await page.getByText('Verified accounts: 2. Imported followers: 6.').waitFor()
    expect(await accountOf('Shop 2')).toBeDefined()
    await page.reload()
    await input.setInputFiles(csv(lines))
    await page.getByText('0 to add, 1 to update, 2 unchanged').waitFor()
    await button(page, 'Apply the file').click()
    await page.getByText('Verified accounts: 3. Imported followers: 3.').waitFor()
  })

  it('reads accounts from a file in CP932, and refuses it in UTF-8', async () => {
    const page = await opened.visit({ path: '/accounts/file' })
    const name = Buffer.from('8353815b838b8368', 'hex')
    const lines = [
      Buffer.from('organization,name,channel_id\n'),
      name,
      Buffer.from(','),
      name,
      Buffer.from(',7'),
    ]
    await page.getByLabel('Drop the CSV file here').setInputFiles({
      ...{ name: 'fleet.csv', mimeType: 'text/csv', buffer: Buffer.concat(lines) },
    })
    await page.getByText('The file does not have this encoding').waitFor()
    await page.getByLabel('Encoding of the file').selectOption('cp932')
    await page.getByRole('cell', { name: 'no organization has this id or name.' }).waitFor()
    await page.getByLabel('Add organizations that do not exist yet').check()
    await page.getByText('1 to add, 0 to update, 0 unchanged').waitFor()
    await page.getByText('ゴールド').first().waitFor()
  })

  it('drops a file, which is refused in the browser if it is too large', async () => {
    const page = await opened.visit({ path: '/accounts/file' })
    await page.evaluate(`{
      const data = new DataTransfer()
      data.items.add(new File([new Uint8Array(1024 * 1024 + 1)], 'large.csv'))
      document.querySelector('.drop-zone').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true }))
    }`)
    await page.getByText('The file is larger than 1 MiB').waitFor()
  })

  it('adds, renames and removes an organization', async () => {
    const page = await opened.visit({ path: '/settings/organizations' })
    await button(page, 'Add an organization').click()
    await page.getByRole('textbox', { name: 'Name' }).fill('<b>Hotels</b>')
    await page.keyboard.press('Enter')
    await button(page, 'Rename <b>Hotels</b>').click()
    await page.getByRole('textbox', { name: 'Name' }).fill('Hotels')
    await page.keyboard.press('Enter')
    await button(page, 'Remove Hotels').click()
    await page.getByLabel('Type Hotels to confirm').fill('Hotels')
    await page.keyboard.press('Enter')
    await button(page, 'Remove Hotels').waitFor({ state: 'detached' })
  })
})
