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

  it('sees the attempts per hour, and each delivery with its event, person and responses', async () => {
    const { accountId, organizationId } = opened.loaded
    const [row] = await opened.database.query<{ id: bigint }>(
      `insert into endpoint (channel_oa_id, name, url, events, condition)
       values ($1, 'Bot', 'https://tool.example/hook', '{message,follow}', '{"tagsAll": ["vip"], "lastSeenAfter": "30d"}') returning id`,
      [accountId],
    )
    const id = row?.id
    await opened.database.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id, display_name) values ($1, $2, 'U7', 'Somchai')`,
      [accountId, organizationId],
    )
    const answers =
      'insert into endpoint_answer (endpoint_id, answered_at, status, answer) values ($1, now(), 502, $2)'
    await opened.database.query(answers, [id, ''])
    await opened.database.query(
      `insert into endpoint_hour select $1, slot, date_trunc('hour', now()) - slot * interval '1 hour', 40, 3 * slot, 4000
         from generate_series(0, 1) slot`,
      [id],
    )
    await opened.database.query(
      `with received as (
         insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, is_forwarded, queued_for)
         select $1, 'line', kind, gen_random_uuid(), now(), 'U7', '{}', true, array[$2::bigint] from unnest(array['follow', 'message']) kind
         returning key, kind
       ), queued as (
         insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, attempts, due_at, status, answer)
         select $1, $2, array[key], 1, now() + interval '1 hour', 502, 'Bad Gateway' from received where kind = 'message' returning id
       )
       insert into endpoint_attempt (endpoint_id, slot, started_at, delivery_id, attempt, status, duration_ms, reason, response_text)
       select $2, 0, now(), id, 1, 502, 87, '', 'the proxy found no server' from queued`,
      [accountId, id],
    )
    const page = await opened.visit({ path: `/endpoints/${id}`, hasAxe: true })
    const chart = page.getByRole('region', { name: 'Attempts per hour' })
    await chart.getByText('Show the numbers').click()
    expect(await chart.locator('tbody tr td').allInnerTexts()).toEqual(['–', '40', '3', '37'])
    await page.getByRole('region', { name: 'Average duration' }).getByRole('img').waitFor()
    const list = page.getByRole('region', { name: 'Deliveries' })
    const rows = list.locator('tbody tr')
    await rows.nth(1).waitFor()
    expect((await rows.allInnerTexts()).map((text) => text.split(/\s+/).slice(0, 3))).toEqual([
      ['Message', 'Somchai', 'pending'],
      ['Follow', 'Somchai', 'accepted'],
    ])
    await rows.first().getByText('87 ms').waitFor()
    await expectSound(page, 'deliveries')
    await button(page, 'Accepted').click()
    await rows.nth(1).waitFor({ state: 'detached' })
    expect(await rows.getByRole('link', { name: 'Somchai' }).first().getAttribute('href')).toBe(
      `/accounts/${accountId}/audience/U7`,
    )
    await button(page, 'Pending').click()
    await list.getByRole('button', { name: /Request and response/ }).click()
    await page.getByRole('dialog').getByText('the proxy found no server').waitFor()
    await expectSound(page, 'delivery')
    await page.keyboard.press('Escape')
    const settings = page.getByRole('region', { name: 'Settings' })
    for (const text of ['has all of the tags: vip', 'was seen in the last 30 days', 'Follow'])
      await settings.getByText(text).waitFor()
    await rows.getByRole('link', { name: 'Message' }).click()
    await page.getByRole('region', { name: 'Endpoints' }).getByRole('link', { name: 'Bot' }).click()
    await page.getByRole('heading', { name: 'Bot' }).waitFor()
  })
})
