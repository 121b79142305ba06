/** What the console's sources must not contain. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { OPERATIONS } from '../../src/operations/all.ts'
import { routeOf } from '../../src/operations/operation.ts'

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
  [
    'a value of a definition of operations, of which only types may be used',
    /^import (?!type\b)[^'"]*'[./]*src\/operations\//m,
  ],
  ['an inline style or script', /<script>|\bstyle="|\bon(click|load|error)="/],
])('no file of the console contains %s', (_, pattern) => {
  expect(files.length).toBeGreaterThan(30)
  for (const file of files)
    expect([file, readFileSync(new URL(file, root), 'utf8').match(pattern)]).toEqual([file, null])
})

it('sends each operation to its route', async () => {
  // Not as a constant, because these types need a browser.
  const { pathOf } = await import(new URL('operations.ts', root).pathname)
  for (const operation of OPERATIONS) {
    const { name, hasTarget } = operation
    expect([name, pathOf(name, hasTarget ? ':id' : null)]).toEqual([name, `/api${routeOf(operation).path}`])
  }
})
