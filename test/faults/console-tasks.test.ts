/** Long work of operators in a browser: tags of all that match, an import, an export, and what becomes of them. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { setUpConsole } from '../support/console-browser.ts'
import { tenantWithMembers } from '../support/load.ts'

const MEMBERS = 1_200

describe.runIf(canRunChromium('the jobs of the console are'))('an operator', () => {
  const opened = setUpConsole((database) =>
    tenantWithMembers(database, MEMBERS, { display_name: `'Name ' || i` }),
  )
  const audience = () => `/accounts/${opened.loaded.accountId}/audience`

  it('changes the tags of all that match after typing their number, without a mouse', async () => {
    const page = await opened.visit({ path: audience(), expected: /400/ })
    await page.getByRole('button', { name: 'Change tags…' }).focus()
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog')
    await dialog.getByText('The filter matches 1,200 members now.').waitFor()
    await dialog.getByLabel('Add tags').fill(`spring, ${'x'.repeat(65)}`)
    await dialog.getByLabel('Type 1200 to confirm').fill('1200')
    await page.keyboard.press('Enter')
    await dialog.getByText('must not have more than 64 characters').waitFor()
    expect(await dialog.getByLabel('Add tags').inputValue()).toContain('spring')
    expect(await dialog.getByLabel('Add tags').getAttribute('aria-invalid')).toBe('true')
    await dialog.getByLabel('Add tags').fill('spring, 2026')
    await page.keyboard.press('Enter')
    await dialog.getByText('1,200 of 1,200 · 1,200 changed').waitFor()
    await page.keyboard.press('Escape')
    await page.getByText('2026', { exact: true }).first().waitFor()
  })

  it('looks at the first lines of a file, imports it, and reads which lines were refused', async () => {
    const page = await opened.visit({ path: audience() })
    await page.getByRole('link', { name: 'Import a file' }).click()
    const lines = ['userId,externalId,tags', 'U1,"E,1","[""a""]"', 'Unobody,<b>E2</b>,', 'U3,E3,']
    await page.getByLabel('Choose a CSV or NDJSON file').setInputFiles({
      ...{ name: 'people.csv', mimeType: 'text/csv' },
      buffer: Buffer.from(lines.join('\n')),
    })
    await page.getByText('U1,"E,1","[""a""]"').waitFor()
    await page.getByText('Unobody,<b>E2</b>,').waitFor()
    await page.getByText('a cell with one tag removes all others').waitFor()
    await page.getByRole('button', { name: 'Start the import' }).focus()
    await page.keyboard.press('Enter')
    // The test before has given tags to U1, which this file replaces.
    await page.getByText(/100% · 2 changed · [01] of them lost a tag, .* · 0 unchanged · 1 refused/).waitFor()
    await page.getByRole('link', { name: 'Import members' }).click()
    await page.getByRole('row', { name: '3 No such member in this scope' }).waitFor()
  })

  it('imports a file of Japanese Windows after choosing its encoding', async () => {
    const page = await opened.visit({ path: `/accounts/${opened.loaded.accountId}/import` })
    // userId,tags and U5,ゴールド①ﾛ in CP932.
    const file = Buffer.concat([
      Buffer.from('userId,tags\r\nU5,'),
      Buffer.from('8353815b838b83688740db', 'hex'),
    ])
    await page.getByLabel('Choose a CSV or NDJSON file').setInputFiles({
      ...{ name: 'people.csv', mimeType: 'text/csv', buffer: file },
    })
    await page.getByText('U5,').waitFor()
    await page.getByLabel('Encoding of the file').selectOption('tis-620')
    await page.getByText('The file does not have this encoding').waitFor()
    await page.getByLabel('Encoding of the file').selectOption('cp932')
    await page.getByText('U5,ゴールド①ﾛ').waitFor()
    await page.getByRole('button', { name: 'Start the import' }).click()
    await page.getByText(/100% · 1 changed/).waitFor()
    const [member] = await opened.database.query(
      `select tags from audience_member where channel_oa_id = $1 and user_id = 'U5'`,
      [opened.loaded.accountId],
    )
    expect(member).toEqual({ tags: ['ゴールド①ﾛ'] })
  })

  it('switches the sync of a segment, and erases its members after typing their number', async () => {
    await opened.database.query(
      `insert into segment (channel_oa_id, name, condition) values ($1, 'Last', '{"eventCountMax":0}')`,
      [opened.loaded.accountId],
    )
    const page = await opened.visit({ path: `${audience()}?segment=Last&q=Name+119` })
    await page.getByRole('button', { name: 'Sync…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('LINE has no audience of this segment.').waitFor()
    await dialog.getByRole('button', { name: 'Turn sync on' }).click()
    await dialog.getByText('Sync is on. The first upload begins within a minute.').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.getByRole('button', { name: 'Sync…' }).click()
    await dialog.getByText('The upload to LINE waits for its turn').waitFor()
    await dialog.getByRole('button', { name: 'Turn sync off and delete the audiences' }).click()
    await dialog.getByText('Sync is off.').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.getByRole('button', { name: 'Erase…' }).click()
    await dialog.getByText('The filter matches 11 members now.').waitFor()
    expect(await dialog.getByRole('button', { name: 'Erase 11 members' }).isDisabled()).toBe(true)
    await dialog.getByLabel('Type 11 to confirm').fill('11')
    await page.keyboard.press('Enter')
    await dialog.getByText('11 of 11').waitFor()
  })

  it('downloads all that match', async () => {
    const page = await opened.visit({ path: `${audience()}?q=Name+12` })
    await page.getByRole('button', { name: 'Export…' }).click()
    await page.getByText('matches 12 members').waitFor()
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download CSV' }).click(),
    ])
    expect(download.suggestedFilename()).toBe(`members-${opened.loaded.accountId}.csv`)
    const text = readFileSync(await download.path(), 'utf8')
    expect(text.startsWith('\uFEFFid,userId,')).toBe(true)
    expect(text.trim().split('\r\n')).toHaveLength(13)
  })

  it('sees on every page how many jobs run, and opens their list', async () => {
    const page = await opened.visit()
    await page.getByRole('link', { name: 'Jobs', exact: true }).waitFor()
    await opened.database.query(
      // Another instance has it.
      `insert into job (kind, actor_kind, actor, parameters, status, leased_until)
       values ('endpoint.replay', 'command', 'root', '{}', 'running', now() + interval '25 seconds')`,
    )
    await page.getByRole('link', { name: 'Jobs 1' }).click()
    await page.getByRole('link', { name: 'Replay past events' }).waitFor()
    await opened.database.query(`delete from job where actor = 'root'`)
  })
})
