/** The page *Report*, as an operations person reads it on a Monday. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { expectSound, goTo, isReady, PHONE, setUpConsole } from '../support/console-browser.ts'
import { loadFleet } from '../support/fleet.ts'

describe.runIf(canRunChromium('the report is'))('the report', () => {
  const opened = setUpConsole((database) => loadFleet(database, { accounts: 60, members: 10 }))

  it('of last week is two clicks away, beside the week before, by account and by source', async () => {
    const page = await opened.visit({ hasAxe: true })
    await page.getByRole('link', { name: 'Report' }).click()
    await page.getByLabel('Period').selectOption('lastWeek')
    await isReady(page)
    const card = page.locator('.cards > div').filter({ hasText: 'New followers' })
    expect(await card.innerText()).toMatch(/New followers\s+[\d,]+\s+[+−-]?\d/)
    expect(await card.getAttribute('title')).toMatch(/^People who followed .* Complete since /)
    expect(page.url()).toContain('period=lastWeek')
    await page.locator('figure.chart canvas').waitFor()
    const accounts = page.getByRole('region', { name: 'Accounts' })
    expect(await accounts.locator('tbody tr').count()).toBe(20)
    const blocks = accounts.getByRole('columnheader', { name: 'Blocks', exact: true })
    await blocks.getByRole('button').click()
    const shown = (await accounts.locator('tbody tr td:nth-of-type(3)').allInnerTexts()).map(Number)
    expect(shown).toEqual(shown.toSorted((a, b) => b - a))
    await accounts.getByRole('button', { name: 'Organizations' }).click()
    const sources = page.getByRole('region', { name: 'Where followers came from' })
    await sources.getByText('qr-shop').waitFor()
    await sources.getByText('no source').waitFor()
    await expectSound(page, 'report')
  })

  it('of an account has no table of accounts, and its period and account are in the address', async () => {
    const { accountId } = opened.loaded.tenant
    const page = await opened.visit({
      path: `/report?period=days&from=2020-01-01&to=2020-01-31&account=${accountId}`,
      expected: /400/,
    })
    await page.getByText('Not counted yet.').first().waitFor()
    expect(await page.locator('.cards b').allInnerTexts()).toEqual(['–', '–', '–', '–', '–'])
    expect(await page.getByRole('region', { name: 'Accounts' }).count()).toBe(0)
    await goTo(page, `/report?period=days&from=2020-02-01&to=2020-01-31&account=${accountId}`)
    await page.getByRole('alert').first().waitFor()
  })

  it('is downloaded as CSV and JSON, and fits one sheet of A4', async () => {
    const page = await opened.visit({ path: '/report' })
    const accounts = page.getByRole('region', { name: 'Accounts' })
    for (const [label, start] of [
      ['CSV', /^\uFEFF"accountId","name","newFollowers"/],
      ['JSON', /^\{"from":"/],
    ] as const) {
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        accounts.getByRole('button', { name: new RegExp(label, 'i') }).click(),
      ])
      expect(readFileSync(await download.path(), 'utf8')).toMatch(start)
      expect(download.suggestedFilename()).toMatch(
        /^report-account-\d{4}-\d\d-\d\d-\d{4}-\d\d-\d\d\.(csv|json)$/,
      )
    }
    const paper = await page.pdf({ format: 'A4' })
    expect(paper.toString('latin1').match(/\/Type \/Page\b/g)).toHaveLength(1)
  })

  it('fits a phone in every language', async () => {
    for (const locale of ['ja', 'th', 'zh-TW']) {
      const page = await opened.visit({ path: '/report', locale, viewport: PHONE, hasAxe: true })
      await expectSound(page, locale)
    }
  })
})
