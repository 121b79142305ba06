/** Two operators open the same form, and each changes another field: both changes stay. */
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { setUpConsole } from '../support/console-browser.ts'
import { addTenant } from '../support/database.ts'
import { EDITING_FORMS, type EditingForm } from '../support/forms.ts'
import { addObjects } from '../support/objects.ts'
import { startApp } from '../support/service.ts'

const MARK = 'before'

describe.runIf(canRunChromium('forms of two operators are'))('two operators', () => {
  const opened = setUpConsole(async (database) => {
    const tenant = await addTenant(database, { basicId: '@before' })
    const service = await startApp(database)
    const objects = await addObjects({ database, service }, tenant, { mark: MARK })
    const { accountId, organizationId } = tenant
    await database.query(
      `update notification_channel set format = 'slack', target = 'https://chat.example/hook'`,
    )
    return { objects, accountId, organizationId }
  })

  interface Row {
    path: () => string
    /** clicked to open the form; null: the page is the form */
    open: ((page: Page) => Promise<void>) | null
    fill: [(page: Page) => Promise<unknown>, (page: Page) => Promise<unknown>]
    /** what is stored after both; a refusal of the second one is its text */
    sql: string
    stored: object
    refusal?: string
  }

  const click = (name: string) => (page: Page) =>
    page.getByRole('button', { name, exact: true }).first().click()
  const type = (name: string, value: string) => (page: Page) =>
    page.locator(`form.form [name=${name}]`).fill(value)
  const choose = (name: string, value: string) => (page: Page) =>
    page.locator(`form.form [name=${name}]`).selectOption(value)

  /** The condition of the segment has another field. */
  const addTag = async (page: Page) => {
    await page.getByLabel('Add a condition…').selectOption('tagsAll')
    await page.getByRole('combobox', { name: 'has all of the tags' }).fill('vip')
  }

  const ROWS: Record<EditingForm, Row> = {
    'organization.rename': {
      path: () => '/settings/organizations',
      open: (page) => page.getByRole('row', { name: MARK }).getByRole('button', { name: 'Rename' }).click(),
      // It has one field, which the second operator does not change.
      fill: [type('name', 'first'), async () => undefined],
      sql: 'select name from organization where id = $1',
      stored: { name: 'first' },
    },
    'account.update': {
      path: () => `/accounts/${opened.loaded.accountId}/edit`,
      open: null,
      fill: [type('name', 'first'), type('basicId', '@second')],
      sql: 'select a.name, basic_id from official_account a where organization_id = $1',
      stored: { name: 'first', basic_id: '@second' },
    },
    'endpoint.update': {
      path: () => `/endpoints/${opened.loaded.objects.endpoint}`,
      open: click('Edit'),
      fill: [(page) => page.getByLabel('All kinds').uncheck(), type('name', 'second')],
      sql: `select p.name, p.events, url from endpoint p join official_account a on a.id = channel_oa_id where organization_id = $1`,
      stored: { name: 'second', events: ['member.created'], url: `https://${MARK}.example/` },
    },
    'segment.update': {
      path: () => `/accounts/${opened.loaded.accountId}/audience?segment=${MARK}`,
      open: click('Edit segment…'),
      fill: [addTag, type('name', 'second')],
      sql: `select s.name, condition from segment s join official_account a on a.id = channel_oa_id where organization_id = $1`,
      stored: { name: 'second', condition: { tagsAll: ['vip'] } },
    },
    'channel.update': {
      path: () => `/settings/notifications/${opened.loaded.objects.channel}`,
      open: click('Edit'),
      fill: [choose('language', 'ja'), type('name', 'second')],
      sql: 'select name, language, target from notification_channel where organization_id = $1',
      stored: { name: 'second', language: 'ja', target: 'https://chat.example/hook' },
    },
    'operator.update': {
      path: () => '/settings/operators',
      open: (page) =>
        page.getByRole('row', { name: 'somebody@' }).getByRole('button', { name: 'Edit' }).click(),
      fill: [choose('role', 'manager'), type('name', 'second')],
      sql: 'select name, role, organization_ids from operator where organization_ids = array[$1::bigint]',
      stored: { name: 'second', role: 'manager', organization_ids: expect.any(Array) },
    },
    'account.update-member': {
      path: () => `/accounts/${opened.loaded.accountId}/audience/${opened.loaded.objects.userId}`,
      open: click('Edit fields'),
      fill: [type('tags', 'first'), type('externalId', 'second')],
      // The version of the member is that of the form.
      refusal: 'has changed since',
      sql: 'select tags, external_id from audience_member where organization_id = $1',
      stored: { tags: ['first'], external_id: null },
    },
  }

  it.each(Object.keys(EDITING_FORMS) as EditingForm[])('keep each other’s changes by %s', async (name) => {
    const { path, open, fill, sql, stored, refusal } = ROWS[name]
    const pages = await Promise.all([1, 2].map(() => opened.visit({ path: path(), expected: /status of 4/ })))
    const form = (page: Page) => page.locator('form.form')
    // Both have the form before one of them saves.
    for (const [index, page] of pages.entries()) {
      await open?.(page)
      await form(page).waitFor()
      await fill[index]?.(page)
    }
    for (const [index, page] of pages.entries()) {
      await form(page).locator('[type=submit]').click()
      if (index === 1 && refusal !== undefined) await form(page).getByText(refusal).waitFor()
      else await form(page).waitFor({ state: 'detached' })
    }
    const [row] = await opened.database.query(sql, [opened.loaded.organizationId])
    expect(row).toEqual(stored)
  })
})
