/** The documents name files that exist. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Names files of other projects. */
const TOOLS = 'docs/tools.md'
const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.versions'])

function filesBelow(directory: string): string[] {
  return readdirSync(`${ROOT}/${directory}`, { withFileTypes: true }).flatMap((entry) => {
    const path = directory === '' ? entry.name : `${directory}/${entry.name}`
    if (!entry.isDirectory()) return [path]
    return NOT_OURS.has(entry.name) ? [] : filesBelow(path)
  })
}

const files = filesBelow('')
const documents = files.filter(
  (file) => file.endsWith('.md') && file !== TOOLS && basename(file) !== 'CHANGELOG.md',
)

it.each(documents)('%s names files of code that exist', (document) => {
  const text = readFileSync(`${ROOT}/${document}`, 'utf8')
  const named = text.match(/(?<![\w/.:*-])[\w.][\w./-]*\.(?:ts|tsx|mjs|sql)\b/g) ?? []
  const missing = named.filter((name) => {
    const path = name.replace(/^(\.\.?\/)+/, '')
    return !files.some((file) => file === path || file.endsWith(`/${path}`))
  })
  expect(missing).toEqual([])
})
