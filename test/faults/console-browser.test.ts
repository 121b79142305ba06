/** Signing in to the console, its languages, and its use with the keyboard alone. */
import { readdirSync, statSync } from 'node:fs'
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { CONSOLE_TOKEN, endSessions, Operator, startConsole } from '../support/console.ts'
import { isReady, setUpConsole } from '../support/console-browser.ts'
import { createTestDatabase } from '../support/database.ts'
import { loadFleet } from '../support/fleet.ts'

/** What Chromium writes about an answer that the page expects. */
const REFUSED = /status of 401/
/** A first load at 3G speed takes 3 s with so much. */
const SCRIPT_MAX_BYTES = 100_000
/** All pages and charts, in Thai: the tables of English and of one other language. */
const ALL_SCRIPT_MAX_BYTES = 118_000

const signIn = async (page: Page, token: string) => {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Sign in' }).click()
}

const focusedText = (page: Page) =>
  page.evaluate(
    `(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()`,
  )

describe.runIf(canRunChromium('signing in to the console and its keyboard are'))('in a browser', () => {
  const opened = setUpConsole((empty) => loadFleet(empty, { accounts: 3, members: 3 }))

  it('the page of the address appears once the token is right', async () => {
    const page = await opened.visit({ path: '/clients', isSignedOut: true, expected: REFUSED })
    await signIn(page, 'wrong')
    await page.getByText('This is not the CONSOLE_TOKEN').waitFor()
    await page.locator('[name=secret]:focus').waitFor()
    await signIn(page, CONSOLE_TOKEN)
    await page.getByRole('heading', { name: 'Clients' }).waitFor()
    expect(new URL(page.url()).pathname).toBe('/clients')
    expect(await page.evaluate('document.cookie + JSON.stringify({ ...localStorage })')).not.toContain(
      CONSOLE_TOKEN,
    )
  })

  it('a person who types wrong tokens learns how long to wait', async () => {
    const own = await startConsole(opened.database)
    const guesses = Array.from({ length: 10 }, (_, i) => new Operator(own.url).signIn(`wrong ${i}`))
    expect((await Promise.all(guesses)).map(({ status }) => status)).toEqual(Array(10).fill(401))
    const page = await opened.visit({ url: own.url, isSignedOut: true, expected: /status of 429/ })
    await signIn(page, CONSOLE_TOKEN)
    await page.getByText(/Too many wrong attempts\. Try again in \d+ seconds\./).waitFor()
  })

  it('a session that ends leads back to the same page after another sign-in', async () => {
    const page = await opened.visit({ expected: REFUSED })
    // The charts are requested after the table. A later request would be refused before the click.
    await page.locator('svg.spark').first().waitFor()
    await endSessions(opened.database)
    await page.getByRole('link', { name: 'Events', exact: true }).click()
    await page.getByText('Your session has ended').waitFor()
    expect(await page.getByText('source.userId').count()).toBe(0)
    await signIn(page, CONSOLE_TOKEN)
    await page.getByRole('cell', { name: 'source.userId is not a text' }).first().waitFor()
    expect(new URL(page.url()).pathname).toBe('/events')
  })

  it('nothing is shown after a sign-out, not even by the back button', async () => {
    const page = await opened.visit()
    await page.getByRole('link', { name: 'Events', exact: true }).click()
    await page.getByRole('cell', { name: 'source.userId is not a text' }).first().waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Token').waitFor()
    expect(await page.context().cookies()).toEqual([])
    await page.goBack()
    await page.getByLabel('Token').waitFor()
    expect(await page.getByText('Corner Coffee').count()).toBe(0)
  })

  it('while the database does not answer, nobody is signed out, and a sign-out says that it failed', async () => {
    const own = await createTestDatabase()
    const failing = await startConsole(own.database)
    const expected = /status of 503/
    const page = await opened.visit({ url: failing.url, expected })
    await own.database.close()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByText('You are still signed in').waitFor()
    expect(await page.context().cookies()).toHaveLength(1)
    await page.reload()
    await page.getByText('The data could not be loaded').waitFor()
    expect(await page.getByLabel('Token').count()).toBe(0)
  })

  it('the language follows the browser until the person chooses another', async () => {
    const page = await opened.visit({ locale: 'ja-JP' })
    const speaks = (tag: string) => page.locator(`html[lang=${tag}]`).waitFor({ state: 'attached' })
    await speaks('ja')
    await page.locator('select.languages').selectOption('th')
    await speaks('th')
    await page.reload()
    await speaks('th')
    await isReady(page)
    const taiwanese = await opened.visit({ locale: 'zh-TW' })
    await taiwanese.locator('html[lang=zh-Hant-TW]').waitFor({ state: 'attached' })
    await taiwanese.getByRole('heading', { name: '帳號總覽' }).waitFor()
  })

  it('another language is loaded before anything is shown, and a choice that cannot be loaded changes nothing', async () => {
    const record = `window.titles = []
      new MutationObserver(() => titles.push(document.title, document.body?.innerText ?? ''))
        .observe(document, { childList: true, subtree: true, characterData: true })`
    const page = await opened.visit({ locale: 'zh-TW', script: record, expected: /Failed to/ })
    expect(await page.evaluate(`titles.filter((text) => /Fleet|Sign out/.test(text))`)).toEqual([])
    await page.route('**/assets/th-*', (route) => route.abort())
    await page.locator('select.languages').selectOption('th')
    await expect.poll(() => page.locator('select.languages').inputValue()).toBe('zh-Hant-TW')
    await page.getByRole('heading', { name: '帳號總覽' }).waitFor()
  })

  it('the first load needs less than 100 KB of compressed script, and all that one person loads less than 118 KB', async () => {
    const page = await opened.visit()
    const scripts = (await page.evaluate(
      `performance.getEntriesByType('resource').map(({ name, transferSize }) => ({ name, transferSize }))`,
    )) as Array<{ name: string; transferSize: number }>
    const loaded = scripts.filter(({ name }) => /\.js(\?|$)/.test(name))
    const bytes = loaded.reduce((sum, { transferSize }) => sum + transferSize, 0)
    expect(bytes).toBeGreaterThan(10_000)
    expect(bytes).toBeLessThan(SCRIPT_MAX_BYTES)
    expect(loaded.filter(({ name }) => /[/.](ja|th|zh)-/.test(name))).toEqual([])
    const assets = new URL('../../dist/web/assets/', import.meta.url)
    const names = readdirSync(assets).filter((name) => name.endsWith('.js.br'))
    // Each language has its texts of pages and of problems.
    const languageOf = (name: string) => /^(?:problem-texts\.)?(ja|th|zh)-/.exec(name)?.[1]
    const sizes = new Map<string | undefined, number>()
    for (const name of names)
      sizes.set(languageOf(name), (sizes.get(languageOf(name)) ?? 0) + statSync(new URL(name, assets)).size)
    expect(sizes.size).toBe(4)
    const shared = sizes.get(undefined) ?? 0
    sizes.delete(undefined)
    expect(shared + Math.max(...sizes.values())).toBeLessThan(ALL_SCRIPT_MAX_BYTES)
  })

  it('the keyboard reaches everything in order, with a visible focus, and skips to the content', async () => {
    const page = await opened.visit()
    await page.keyboard.press('Tab')
    expect(await focusedText(page)).toBe('Skip to content')
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    expect(await focusedText(page)).toBe('Download fleet.csv')
    await page.reload()
    await isReady(page)
    const order: unknown[] = []
    for (let stop = 0; stop < 18; stop += 1) {
      await page.keyboard.press('Tab')
      const name = await focusedText(page)
      const outline = await page.evaluate(
        `(({ outlineStyle, outlineWidth, boxShadow }) => outlineStyle !== 'none' && outlineWidth !== '0px' || boxShadow !== 'none')(getComputedStyle(document.activeElement))`,
      )
      expect([name, outline || name === 'Skip to content']).toEqual([name, true])
      order.push(name)
    }
    expect(order.slice(0, 9)).toEqual([
      ...[
        'Skip to content',
        'Search everything',
        'Fleet',
        'Report',
        'Events',
        'Endpoints',
        'Clients',
        'Activity',
      ],
      'Settings',
    ])
    expect(order).toContain('Search accounts')
  })

  it('a navigation moves the focus to the title of the new page', async () => {
    const page = await opened.visit()
    await page.getByRole('link', { name: 'Events', exact: true }).focus()
    await page.keyboard.press('Enter')
    const isFocused = (name: string) =>
      page.locator('h1:focus', { hasText: name }).waitFor({ state: 'attached' })
    await isFocused('Events')
    expect(await page.title()).toContain('Events')
    await page.goBack()
    await isFocused('Fleet')
    await page.goForward()
    await isFocused('Events')
  })

  it('sorts the fleet by the keyboard alone', async () => {
    const page = await opened.visit()
    await page.getByRole('columnheader', { name: 'Account' }).getByRole('button').focus()
    for (const [key, order] of Object.entries({ Space: 'descending', Enter: 'ascending' })) {
      await page.keyboard.press(key)
      await page.locator(`th[aria-sort=${order}]`, { hasText: 'Account' }).waitFor()
    }
  })

  it.each([
    ['its first field', '/clients', 'Add a client', 'INPUT'],
    ['the title of a confirmation without a field', 'client', 'Revoke this client', 'H2'],
  ])(
    'a dialog begins at %s, so that neither a space nor Enter closes or confirms it',
    async (_, path, name, tag) => {
      const paths: Record<string, string> = {
        client: `/clients/${opened.loaded.clientId}`,
      }
      const page = await opened.visit({ path: paths[path] ?? path })
      await page.getByRole('button', { name }).first().click()
      const dialog = page.getByRole('dialog')
      await dialog.waitFor()
      expect(await page.evaluate('document.activeElement.tagName')).toBe(tag)
      await page.keyboard.press('Space')
      if (tag === 'H2') await page.keyboard.press('Enter')
      expect(await dialog.isVisible()).toBe(true)
      // The space is lost with the form.
      page.on('dialog', (question) => question.accept())
      await page.keyboard.press('Escape')
      await dialog.waitFor({ state: 'detached' })
    },
  )
})
