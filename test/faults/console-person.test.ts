/** A member page of a person who is a member of several accounts. */
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { randomUserId } from '../../tools/simulator/events.ts'
import { canRunChromium } from '../support/chromium.ts'
import { expectSound, PHONE, setUpConsole } from '../support/console-browser.ts'
import { addTenant } from '../support/database.ts'
import { load } from '../support/load.ts'

const NAMES = ['Corner Coffee', 'Tokyo Ramen', 'Nara Bakery']

describe.runIf(canRunChromium('the pages of people are'))('a person in three accounts', () => {
  const opened = setUpConsole(async (database) => {
    const tenants = await Promise.all(NAMES.map(() => addTenant(database)))
    for (const [index, { accountId }] of tenants.entries())
      await load(database, 'update official_account set name = $2 where id = $1', [accountId, NAMES[index]])
    return tenants
  })

  async function addPerson(): Promise<string> {
    const userId = randomUserId()
    for (const { accountId, organizationId } of opened.loaded)
      await load(
        opened.database,
        `insert into audience_member (channel_oa_id, organization_id, user_id, display_name) values ($1, $2, $3, 'Ann')`,
        [accountId, organizationId, userId],
      )
    return userId
  }
  const button = (page: Page, name: string) => page.getByRole('button', { name })
  const path = (userId: string) => `/accounts/${opened.loaded[0]?.accountId}/audience/${userId}`
  const accountsOf = (userId: string) =>
    load<{ name: string }>(
      opened.database,
      `select a.name from audience_member m join official_account a on a.id = m.channel_oa_id
        where m.user_id = $1 order by a.name`,
      [userId],
    )

  it('is erased from all of them as one job, on a phone', async () => {
    const userId = await addPerson()
    const page = await opened.visit({ path: path(userId), viewport: PHONE, hasAxe: true })
    await button(page, 'Erase this person…').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('From all 3 accounts listed here').check()
    await dialog.getByText('This deletes from these 3 accounts:').waitFor()
    await expectSound(page, 'dialog')
    await dialog.getByLabel('Type Ann to confirm').fill('Ann')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/settings\/jobs\/\d+$/)
    await page.getByText('3 of 3 · 3 erased').waitFor()
    expect(await accountsOf(userId)).toEqual([])
  })

  it('is exported from the account or from all of them', async () => {
    const userId = await addPerson()
    const page = await opened.visit({ path: path(userId) })
    await button(page, 'Export all stored data…').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('link', { name: 'From Corner Coffee' }).waitFor()
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      dialog.getByRole('link', { name: 'From all 3 accounts, in one file' }).click(),
    ])
    expect(file.suggestedFilename()).toBe('person.json')
  })
})
