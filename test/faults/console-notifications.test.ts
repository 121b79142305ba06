/** Notification channels, and sending again what an endpoint missed, as an operator does it in the browser. */
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { canRunChromium } from '../support/chromium.ts'
import { addSignedIn } from '../support/console.ts'
import { expectSound, PHONE, setUpConsole } from '../support/console-browser.ts'
import { addTenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { insertRow } from '../support/load.ts'

const EVENTS = 30

describe.runIf(canRunChromium('notifications in the console are'))('an operator', () => {
  const opened = setUpConsole(addTenant)
  beforeAll(() => {
    const sender = new Sender(opened.database, () => false, new HostResolver())
    sender.start()
    return () => sender.stop()
  })

  const phone = { viewport: PHONE, colorScheme: 'dark', hasAxe: true, timezoneId: 'Asia/Tokyo' } as const
  const refused = { expected: /400|429/ }
  const addEndpoint = (columns: object) => {
    const account = { channel_oa_id: opened.loaded.accountId, allow_private_network: true }
    return insertRow(opened.database, 'endpoint', { ...account, ...columns })
  }
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })

  it('adds a channel, tests it, sees its message, pauses and removes it', async () => {
    const receiver = await startReceiver()
    const page = await opened.visit({ ...phone, ...refused })
    const dialog = page.getByRole('dialog')
    await page.getByText('Nobody gets a message').waitFor()
    await page.getByRole('link', { name: 'Add channel' }).click()
    await page.getByText('No channel yet').waitFor()
    await button(page, 'Add channel').focus()
    await page.keyboard.press('Enter')
    await dialog.getByLabel('Webhook URL').fill(receiver.url)
    await dialog.getByLabel('Name').fill('On call')
    await page.keyboard.press('Enter')
    await dialog.getByText('must begin with https').waitFor()
    await page.locator('input[name="target"]:focus').waitFor()
    await dialog.getByLabel('Private network allowed').check()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'On call' }).waitFor()
    await page.getByText('No message yet').waitFor()
    expect(await page.getByText(new URL(receiver.url).pathname).count()).toBe(0)

    await button(page, 'Send test message').click()
    await dialog.getByText('accepted').waitFor()
    await dialog.getByText('Test message of oa-audience').waitFor()
    expect(JSON.parse(receiver.received[0]?.body ?? '')).toEqual({
      text: expect.stringContaining('Test message of oa-audience'),
    })
    await dialog.getByRole('button', { name: 'Close', exact: true }).last().click()
    const messages = page.getByRole('region', { name: 'Messages' })
    await messages.getByText('sent', { exact: true }).waitFor()

    await button(page, 'Pause').click()
    await page.getByText('The channel was paused').waitFor()
    await button(page, 'Edit').click()
    expect(await dialog.getByLabel('Webhook URL').inputValue()).toBe('')
    await dialog.getByLabel('Name').fill('Night shift')
    await button(page, 'Save').click()
    await dialog.waitFor({ state: 'detached' })
    const [row] = await opened.database.query('select target, status, name from notification_channel')
    expect(row).toEqual({ target: receiver.url, status: 'paused', name: 'Night shift' })
    await button(page, 'Remove…').click()
    await button(page, 'Remove permanently').click()
    await page.getByText('No channel yet').waitFor()
  })

  it('sees what waits, what was sent and what has failed, with the text of each message', async () => {
    const email = { name: 'Owners', format: 'email', target: 'owners@example.com' }
    const channel = await insertRow(opened.database, 'notification_channel', email)
    await opened.database.query(
      `with added as (
         insert into notification (notification_channel_id, kind, reason, due_at, attempts, first_attempt_at, sent_at, failed_at, status, answer)
         values ($1, 'problem', 'suspended', now(), 1, now(), now(), null, 250, ''),
                ($1, 'problem', 'suspended', now(), 2, now(), null, now(), 550, 'No such user here'),
                ($1, 'problem', 'suspended', now() + interval '1 hour', 1, now(), null, null, 451, 'Try later'),
                ($1, 'problem', 'suspended', now() + interval '90 minutes', 0, null, null, null, null, null)
         returning id)
       insert into notification_account (notification_id, channel_oa_id, before, after, problem, since)
       select id, $2, 'ok', 'broken', '{"reason":"suspended","status":"broken","facts":{}}', now() from added`,
      [channel, opened.loaded.accountId],
    )
    const viewer = await addSignedIn(opened, { role: 'viewer' })
    const path = `/settings/notifications/${channel}`
    const page = await opened.visit({ ...phone, path, operator: viewer })
    const items = page.locator('.messages > li')
    await items.nth(3).waitFor()
    expect(await items.locator('.tag').allInnerTexts()).toEqual([
      ...['pending', 'retrying', 'failed permanently', 'sent'],
    ])
    await items.nth(0).getByText('waits until').waitFor()
    await items.nth(1).getByText('451 Try later').waitFor()
    await items.nth(2).getByText('550 No such user here').waitFor()
    expect(await items.nth(0).locator('pre').innerText()).toContain('suspended')
    for (const name of ['Send test message', 'Edit', 'Remove…'])
      expect([name, await button(page, name).count()]).toEqual([name, 0])
  })

  it('counts the events of a time range, sends them again and follows the job to its end', async () => {
    const receiver = await startReceiver()
    await opened.database.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, user_id, payload)
       select $1, 'line', 'message', gen_random_uuid(), now(), now() - interval '1 minute', 'U1',
              '{"type":"message","timestamp":1,"source":{"type":"user","userId":"U1"},"message":{"type":"text","id":"1","text":"x"}}'
         from generate_series(1, $2::int)`,
      [opened.loaded.accountId, EVENTS],
    )
    const endpoint = await addEndpoint({ name: 'Tool', url: receiver.url, format: 'line' })
    const page = await opened.visit({
      ...{ ...phone, ...refused, path: `/endpoints/${endpoint}` },
    })
    const dialog = page.getByRole('dialog')
    await button(page, 'Replay a time range…').click()
    await button(page, 'Last 24 hours').click()
    await dialog.getByLabel('Events', { exact: true }).fill('beacon')
    await button(page, 'Count first').click()
    await dialog.getByText('Nothing matches.').waitFor()
    await dialog.getByLabel('Events', { exact: true }).fill('')
    await dialog.getByLabel('Received from').fill('2030-01-01T00:00')
    await button(page, 'Count first').click()
    await dialog.getByText('must be earlier').waitFor()
    await button(page, 'Last hour').click()
    await dialog.getByLabel('Events per second').fill('1000')
    await button(page, 'Count first').click()
    await dialog.getByText(`${EVENTS} events would be sent. This takes about 1 second.`).waitFor()
    await expectSound(page, 'count')
    await button(page, `Replay ${EVENTS} events`).click()
    await dialog.getByText('done', { exact: true }).waitFor()
    await dialog.getByText(`${EVENTS} of ${EVENTS}`).waitFor()
    const sent = receiver.received.flatMap(({ body }) => JSON.parse(body).events)
    expect(sent).toHaveLength(EVENTS)
    await dialog.getByRole('link', { name: 'Replay past events' }).click()
    await page.getByRole('link', { name: 'Tool', exact: true }).waitFor()
  })

  it('sends the present state of members that match again', async () => {
    const receiver = await startReceiver()
    await opened.database.query(
      `insert into audience_member (channel_oa_id, organization_id, user_id, tags)
       select $1, $2, 'U' || i, case when i % 2 = 0 then array['vip'] else '{}' end from generate_series(1, 6) i`,
      [opened.loaded.accountId, opened.loaded.organizationId],
    )
    const endpoint = await addEndpoint({ name: 'CRM', url: receiver.url, format: 'members' })
    const page = await opened.visit({ ...phone, path: `/endpoints/${endpoint}` })
    const dialog = page.getByRole('dialog')
    await button(page, 'Replay the present state…').click()
    await dialog.getByLabel('Search members').fill('vip')
    await button(page, 'Count first').click()
    await expectSound(page, 'count')
    await button(page, 'Replay 3 members').click()
    await dialog.getByText('done', { exact: true }).waitFor()
    await expect.poll(() => receiver.received.length).toBe(3)
  })
})
