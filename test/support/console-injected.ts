/** What a hostile text must never become in the console: an element, a handler, a link elsewhere, or code. */
import type { Browser, Page } from 'playwright-core'
import { expect } from 'vitest'
import { visitConsole } from './console-browser.ts'

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

/** A page whose `stolen()` is a call of the attacker. `expectHarmless` fails if a text was more than text. */
export async function openWatched(
  browser: Browser,
  url: string,
  path: string,
): Promise<{ page: Page; expectHarmless: () => Promise<void> }> {
  const page = await visitConsole(browser, url, { path })
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
