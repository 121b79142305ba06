/** Text of other people is text in the console, whatever it is made of. */
import { describe, expect, it } from 'vitest'
import { canRunChromium } from '../support/chromium.ts'
import { goTo, setUpConsole } from '../support/console-browser.ts'
import { loadMarkup, SHAPES } from '../support/markup.ts'

/** Everything that the console itself is made of. */
const TAGS =
  'html head meta title link script style body noscript div span header main nav search section footer figure figcaption a b p h1 h2 h3 ul ol li dl dt dd table thead tbody tr th td svg path circle rect g button select option input label fieldset legend form dialog details summary pre code time progress strong em canvas del ins'

/** What a text must not have made: foreign elements, handlers, and links that lead elsewhere. */
const FIND_INJECTED = `(() => {
  const tags = new Set(${JSON.stringify(TAGS)}.split(' '))
  const elements = [...document.querySelectorAll('*')]
  return [
    ...elements.filter(({ localName }) => !tags.has(localName)).map(({ outerHTML }) => outerHTML.slice(0, 200)),
    ...elements.filter((element) => element.getAttributeNames().some((name) => name.startsWith('on'))).map(({ outerHTML }) => outerHTML.slice(0, 200)),
    ...[...document.links].filter(({ origin, protocol }) => origin !== location.origin || protocol !== location.protocol).map(({ href }) => href),
    ...(({}).polluted === undefined ? [] : ['Object.prototype is polluted']),
  ]
})()`

describe.runIf(canRunChromium('hostile texts in the console are'))('the console', () => {
  const opened = setUpConsole(loadMarkup)

  /** A page whose `stolen()` is a call of the attacker. `expectHarmless` fails if a text was more than text. */
  async function open(path: string) {
    const page = await opened.visit({ path })
    let calls = 0
    await page.exposeFunction('stolen', () => {
      calls += 1
    })
    const expectHarmless = async () => {
      const { pathname } = new URL(page.url())
      expect([pathname, await page.evaluate(FIND_INJECTED)]).toEqual([pathname, []])
      expect(calls).toBe(0)
    }
    return { page, expectHarmless }
  }

  it('shows each of them on the page of one account, member, event, endpoint and client', async () => {
    const idOf = async (statement: string) =>
      String((await opened.database.query<{ id: unknown }>(statement))[0]?.id)
    const account = await idOf(`select id from official_account where name like '<img%' limit 1`)
    const event = await idOf('select min(id) as id from event')
    const endpoint = await idOf('select min(id) as id from endpoint')
    const client = await idOf('select min(id) as id from api_client')
    const { page, expectHarmless } = await open(`/accounts/${account}`)
    await page.getByText('Checks of the last verification').click()
    await expectHarmless()
    const user = encodeURIComponent(SHAPES[0] as string)
    const paths = [
      `/accounts/${opened.loaded.accountId}`,
      `/accounts/${opened.loaded.accountId}/audience/${user}`,
      `/events/${event}`,
      `/endpoints/${endpoint}`,
      `/clients/${client}`,
      `/events?reason=${user}&account=${opened.loaded.accountId}`,
    ]
    for (const path of paths) {
      await goTo(page, path)
      await page
        .getByText(SHAPES[0] as string)
        .filter({ visible: true })
        .first()
        .waitFor()
      await expectHarmless()
    }
    await page.getByRole('combobox', { name: 'Account' }).click()
    await page.getByRole('option', { name: /img/ }).first().waitFor()
    await expectHarmless()
  })

  it('shows states of other programs that are names of JavaScript', async () => {
    const { page } = await open('/nothing')
    for (const status of ['__proto__', 'constructor']) {
      await opened.database.query('update endpoint set status = $1', [status])
      await opened.database.query('update api_client set status = $1', [status])
      for (const path of ['/endpoints', '/clients']) {
        await goTo(page, path)
        await page.locator('.tag', { hasText: status }).first().waitFor()
      }
    }
  })

  it('sends no request to another address than the page is about', async () => {
    const { page } = await open('/nothing')
    const paths = `
      /accounts/..%2Fclients%2F1 /accounts/1%2F..%2F2/audience /accounts/..%2Fclients%2F1/audience/U1
      /events/..%2Fclients%2F1 /endpoints/..%2Fsession /clients/..%2Fkeys%2F1
    `
      .trim()
      .split(/\s+/)
    for (const path of paths) {
      await goTo(page, path)
      expect([path, await page.getByRole('heading', { level: 1 }).innerText()]).toEqual([
        path,
        'Page not found',
      ])
    }
    for (const path of ['/events', '/endpoints']) {
      await goTo(page, `${path}?account=${encodeURIComponent('../clients/1')}`)
      const chosen = await page.getByRole('combobox', { name: 'Account' }).inputValue()
      expect([path, chosen]).toEqual([path, 'All accounts'])
    }
  })

  it('keeps text that reverses itself to its own place', async () => {
    const { page } = await open(`/accounts/${opened.loaded.accountId}/audience`)
    await page.locator('tbody a').first().waitFor()
    expect(await page.evaluate(`getComputedStyle(document.querySelector('tbody a')).unicodeBidi`)).toBe(
      'isolate',
    )
  })

  it.each([
    ['/', 'table.fleet tbody tr'],
    ['/accounts/:account/audience', 'main tbody tr'],
    ['/events', 'main tbody tr'],
    ['/endpoints', 'main tbody tr'],
    ['/clients', 'main tbody tr'],
  ])('shows all of them in %s', async (path, rows) => {
    const { page, expectHarmless } = await open(path.replace(':account', String(opened.loaded.accountId)))
    await page
      .locator(rows)
      .nth(SHAPES.length - 1)
      .waitFor()
    await expectHarmless()
    const text = await page.locator('main').innerText()
    expect(SHAPES.filter((shape) => shape.length < 100 && !text.includes(shape.trim()))).toEqual([])
  })
})
