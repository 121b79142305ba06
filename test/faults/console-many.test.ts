/** Many accounts at once in a browser: rows of the fleet are chosen and muted, and shown as muted. */
import { describe, expect, it } from 'vitest'
import { confirmStatuses } from '../../src/watch/store-statuses.ts'
import { canRunChromium } from '../support/chromium.ts'
import { setUpConsole } from '../support/console-browser.ts'
import { loadFleet } from '../support/fleet.ts'
import { load } from '../support/load.ts'
import { addClientNamed } from '../support/operations.ts'

const NAMES = ['Broken one', 'Broken two']

describe.runIf(canRunChromium('changes of many accounts are'))('an operator', () => {
  const opened = setUpConsole(async (database) => {
    const fleet = await loadFleet(database, { accounts: 4, members: 1 })
    await load(
      database,
      `update official_account a set name = n.name, channel_secret = null
         from (select ($1::text[])[row_number() over (order by id)] as name, id from official_account
                where id <> $2 order by id limit 2) n where n.id = a.id`,
      [NAMES, fleet.tenant.accountId],
    )
    await confirmStatuses(database)
    return fleet
  })

  it('mutes two accounts that are chosen in the fleet, reads what became of each, and sees them as muted', async () => {
    const page = await opened.visit({ path: '/?state=broken' })
    for (const name of NAMES) await page.getByLabel(`Choose ${name}`).check()
    await page.getByText('2 accounts chosen').waitFor()
    await page.getByRole('button', { name: 'Change…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog
      .getByLabel('Until')
      .fill(`${new Date(Date.now() + 7 * 86_400_000).toISOString().slice(0, 10)}T09:00`)
    await dialog.getByLabel('Reason').fill('The shops move')
    await dialog.getByRole('button', { name: 'Start' }).click()
    await dialog.getByText('2 of 2 · 2 changed').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    const muted = page.locator('.fleet tbody tr', { hasText: 'muted' })
    await muted.nth(1).waitFor()
    expect(await muted.count()).toBe(2)
    await page.getByRole('link', { name: NAMES[0] as string }).click()
    await page.getByText(/Muted until .*: The shops move/).waitFor()
    await page.getByRole('button', { name: 'End the mute' }).click()
    await page.getByRole('button', { name: 'Mute…' }).waitFor()
    await page.goto(`${opened.url}/settings/jobs`)
    await page.getByRole('link', { name: 'Change many accounts' }).click()
    await page.getByRole('row', { name: `${NAMES[1]} changed` }).waitFor()
  })

  it('adds an endpoint to all that match the filter, pauses and removes it by its URL, and gives a client access to them', async () => {
    await addClientNamed(opened.database, 'Many')
    const page = await opened.visit({ path: '/?problem=no_channel_secret' })
    const change = async (name: string, fill: () => Promise<unknown>, result: RegExp) => {
      await page.getByLabel('Choose all that match').check()
      await page.getByRole('button', { name: 'Change…' }).click()
      await page.getByLabel('Change', { exact: true }).selectOption({ label: name })
      await fill()
      await page.getByRole('button', { name: 'Start' }).click()
      await page.getByText(result).waitFor()
    }
    const url = () => page.getByLabel('URL', { exact: true }).fill('https://tool.example/')
    await change('Add an endpoint to each', url, /2 of 2 · 2 changed/)
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Clear' }).click()
    const pause = () => page.getByLabel('URL that the endpoints have').fill('https://tool.example/')
    await change('Change endpoints by URL', pause, /2 of 2 · 2 changed/)
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Clear' }).click()
    expect(await load(opened.database, `select count(*)::int from endpoint where status = 'paused'`)).toEqual(
      [{ count: 2 }],
    )
    const remove = async () => {
      await pause()
      await page.getByLabel('What happens to them').selectOption({ label: 'Remove' })
      expect(await page.getByRole('button', { name: 'Start' }).isDisabled()).toBe(true)
      await page.getByLabel('Type 2 to confirm').fill('2')
    }
    await change('Change endpoints by URL', remove, /2 of 2 · 2 changed/)
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Clear' }).click()
    expect(await load(opened.database, `select from endpoint where status = 'paused'`)).toEqual([])
    const client = () => page.getByLabel('Client', { exact: true }).selectOption({ label: 'Many' })
    await change('Give a client access', client, /2 of 2 · 2 changed/)
    await page.getByRole('dialog').getByRole('link', { name: 'Change many accounts' }).click()
    await page.getByRole('button', { name: 'Show the keys and secrets' }).click()
    expect(await page.getByRole('dialog').innerText()).toMatch(/account,id,secret\s+\d+,\d+,key_/)
    await page.goto(`${opened.url}/activity?operator=token`)
    const keys = page.getByRole('listitem').filter({ hasText: 'added a key of the client Many' })
    await keys.getByText('and 1 more account', { exact: true }).click()
    expect(await keys.count()).toBe(1)
    for (const name of NAMES) await keys.getByRole('link', { name, exact: true }).waitFor()
    await page.getByRole('link', { name: 'Change many accounts' }).first().click()
    await page.getByRole('heading', { name: 'Results' }).waitFor()
  })
})
