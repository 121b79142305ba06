/** Conditions in words: a segment, an endpoint, and what is asked before a half-typed form is lost. */
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { expectSound, goTo, isReady, setUpConsole } from '../support/console-browser.ts'
import { loadFleet } from '../support/fleet.ts'

describe.runIf(canRunChromium('conditions are'))('a condition', () => {
  const opened = setUpConsole((database) => loadFleet(database, { accounts: 3, members: 12 }))
  const audience = () => `/accounts/${opened.loaded.tenant.accountId}/audience`
  const count = (text: string) => ({ hasText: text })

  it('of a segment is made of rows in words, with suggestions, the number of members and examples', async () => {
    const { database, loaded } = opened
    await database.query(
      `update audience_member set tags = '{gold}', display_name = 'Ann', relationship = 'following' where channel_oa_id = $1 and user_id in ('U1', 'U2')`,
      [loaded.tenant.accountId],
    )
    const page = await opened.visit({ path: `${audience()}?relationship=following`, hasAxe: true })
    await page.getByRole('button', { name: 'Save as segment…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Name').fill('Vips')
    await dialog.getByLabel('Add a condition…').selectOption('tagsAll')
    const tags = dialog.getByRole('combobox', { name: 'has all of the tags' })
    expect(await dialog.locator('datalist option[value=gold]').count()).toBe(1)
    await tags.fill('gold')
    await dialog.locator('p', count('2 members match.')).waitFor()
    await dialog.getByText('For example: Ann, Ann').waitFor()
    await dialog.getByLabel('Add a condition…').selectOption('followedAfter')
    await dialog.getByRole('spinbutton', { name: 'followed less than … ago' }).fill('9')
    await dialog.getByLabel('Unit').selectOption('w')
    await isReady(page)
    await expectSound(page, 'editor')
    await dialog.getByRole('button', { name: 'Save', exact: true }).click()
    await page.waitForURL(/segment=Vips/)
    expect(await database.query('select condition from segment')).toEqual([
      { condition: { relationship: 'following', tagsAll: ['gold'], followedAfter: '9w' } },
    ])
  })

  it('filters the audience without a segment, and a bulk change reaches only its members', async () => {
    const { database, loaded } = opened
    const { accountId } = loaded.tenant
    await database.query(
      `update audience_member set tags = '{silver}' where channel_oa_id = $1 and user_id in ('U3', 'U4', 'U5')`,
      [accountId],
    )
    const page = await opened.visit({ path: audience() })
    await page.getByRole('button', { name: 'Condition…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Add a condition…').selectOption('tagsAny')
    await dialog.getByRole('combobox', { name: 'has one of the tags' }).fill('silver')
    await dialog.locator('p', count('3 members match.')).waitFor()
    await dialog.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByRole('button', { name: 'Remove: has one of the tags: silver' }).waitFor()
    await expect.poll(() => page.locator('tbody tr').count()).toBe(3)
    await page.reload()
    await expect.poll(() => page.locator('tbody tr').count()).toBe(3)
    await page.getByRole('button', { name: 'Change tags…' }).click()
    await dialog.getByText('The filter matches 3 members now.').waitFor()
    await dialog.getByLabel('Add tags').fill('seen')
    await dialog.getByRole('button', { name: /Change 3/ }).click()
    await dialog.locator('.job', { hasText: 'done' }).waitFor()
    expect(
      await database.query(
        `select array_agg(user_id order by user_id) as ids from audience_member where 'seen' = any (tags)`,
      ),
    ).toEqual([{ ids: ['U3', 'U4', 'U5'] }])
    const [started] = await database.query<{ changes: object }>(
      `select changes from activity where action = 'members.tagged'`,
    )
    expect(started?.changes).toMatchObject({ filters: { condition: { tagsAny: ['silver'] } } })
  })

  it('that the service refuses is refused at its row', async () => {
    const page = await opened.visit({ path: audience(), expected: /status of 400/ })
    await page.getByRole('button', { name: 'Save as segment…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Name').fill('Refused')
    await dialog.getByLabel('Add a condition…').selectOption('language')
    await dialog.getByRole('textbox', { name: 'language is' }).fill('x'.repeat(65))
    await dialog.getByRole('button', { name: 'Save', exact: true }).click()
    await dialog.locator('.condition-row .problem').waitFor()
  })

  it('of a new endpoint shows who would move to it, and a half-typed form asks before it is lost', async () => {
    const { accountId } = opened.loaded.tenant
    const page = await opened.visit({ path: `/accounts/${accountId}` })
    await page.getByRole('button', { name: 'Add endpoint' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('May reply').check()
    await dialog.getByRole('button', { name: 'Count who would move' }).click()
    await dialog.getByText(/12 people.*this endpoint/).waitFor()
    const asked: string[] = []
    let accepts = false
    page.on('dialog', (each) => {
      asked.push(each.message())
      return accepts ? each.accept() : each.dismiss()
    })
    await dialog.getByRole('button', { name: 'Close' }).click()
    expect(await dialog.count()).toBe(1)
    accepts = true
    await dialog.getByRole('button', { name: 'Close' }).click()
    await dialog.waitFor({ state: 'detached' })
    expect(asked).toEqual(Array(2).fill('What you typed was not saved. Leave it?'))
    await goTo(page, '/')
  })

  it('of a half-typed form asks before the browser goes back and before the page is closed', async () => {
    const page = await opened.visit({ path: '/clients' })
    await goTo(page, '/')
    await goTo(page, '/clients')
    await page.getByRole('button', { name: 'Add a client' }).click()
    const name = page.getByRole('dialog').getByLabel('Name')
    await name.pressSequentially('half')
    const asked: string[] = []
    let accepts = false
    page.on('dialog', (each) => {
      asked.push(each.type())
      return accepts ? each.accept() : each.dismiss()
    })
    await page.evaluate('history.back()')
    await expect.poll(() => asked).toEqual(['confirm'])
    await expect.poll(() => new URL(page.url()).pathname).toBe('/clients')
    await page.close({ runBeforeUnload: true })
    await expect.poll(() => asked).toEqual(['confirm', 'beforeunload'])
    expect(await name.inputValue()).toBe('half')
    accepts = true
    await page.evaluate('history.back()')
    await name.waitFor({ state: 'detached' })
    await expect.poll(() => new URL(page.url()).pathname).toBe('/')
    expect(asked).toHaveLength(3)
  })
})
