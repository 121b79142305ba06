/** What the console's sources must not contain. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

const root = new URL('../../web/', import.meta.url)
const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) =>
  /\.(tsx?|html|css)$/.test(name),
)

it.each([
  [
    'markup made from text',
    /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment/,
  ],
  ['code made from text', /\beval\(|new Function\(/],
  ['another host', /(https?:)?\/\/(?!www\.w3\.org)[a-z0-9-]+\.(com|net|org|io|dev)\b/],
  ['an inline style or script', /<script>|\bstyle="|\bon(click|load|error)="/],
])('no file of the console contains %s', (_, pattern) => {
  expect(files.length).toBeGreaterThan(30)
  for (const file of files)
    expect([file, readFileSync(new URL(file, root), 'utf8').match(pattern)]).toEqual([file, null])
})
