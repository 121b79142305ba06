/** The documents name files, checks, reasons and tests that exist. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { FAILURE_REASONS } from '../../src/accounts/verification.ts'
import { REASONS } from '../../src/watch/account-status.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** Names files of other projects. */
const TOOLS = 'docs/tools.md'
const NOT_OURS = /^(node_modules|dist(\.\d+)?|\.git)$/

function filesBelow(directory: string): string[] {
  return readdirSync(`${ROOT}/${directory}`, { withFileTypes: true }).flatMap((entry) => {
    const path = directory === '' ? entry.name : `${directory}/${entry.name}`
    if (!entry.isDirectory()) return [path]
    return NOT_OURS.test(entry.name) ? [] : filesBelow(path)
  })
}

const files = filesBelow('')
const documents = files.filter(
  (file) => file.endsWith('.md') && file !== TOOLS && basename(file) !== 'CHANGELOG.md',
)

/** The files and folders of code in a text that do not exist. */
function missingIn(text: string): string[] {
  const named =
    text.match(/(?<![\w/.:*@-])(?:[\w.][\w./-]*\.(?:ts|tsx|mjs|sql)\b|src\/[\w/-]+(?![\w./-]))/g) ?? []
  return named.filter((name) => {
    const path = name.replace(/^(\.\.?\/)+/, '').replace(/\/$/, '')
    return !files.some((file) => `/${file}`.endsWith(`/${path}`) || file.startsWith(`${path}/`))
  })
}

it.each(documents)('%s names files and folders of code that exist', (document) => {
  expect(missingIn(readFileSync(`${ROOT}/${document}`, 'utf8'))).toEqual([])
})

it.each(documents.filter((file) => /decisions\/\d/.test(file)))(
  '%s says what would change it',
  (document) => {
    expect(readFileSync(`${ROOT}/${document}`, 'utf8')).toMatch(/\*\*What would change our mind:\*\* /)
  },
)

it('comments name files and folders of code that exist', () => {
  const missing = files
    // A released migration keeps the names of its day: another text would have another checksum.
    .filter((file) => /\.(ts|tsx|mjs|sql)$/.test(file) && !/^migrations\/\d/.test(file))
    .flatMap((file) => {
      const text = readFileSync(`${ROOT}/${file}`, 'utf8')
      const comments = text.match(/\/\*\*[\s\S]*?\*\/|^\s*(?:\/\/|--) .*$/gm) ?? []
      return missingIn(comments.join('\n')).map((name) => `${file}: ${name}`)
    })
  expect(missing).toEqual([])
})

const contributing = readFileSync(`${ROOT}/CONTRIBUTING.md`, 'utf8')
/** The first sentence of each recipe, by its example. */
const recipes = [...contributing.matchAll(/^\*\*An? [^*]+\*\*.*?, such as `(\S+)`(.*?)\.\s(?=[A-Z`]|$)/gms)]

it.each(recipes.map(([, example = '', text = '']) => [example, text] as const))(
  'the recipe of CONTRIBUTING.md for %s names the files that mention it, and no other',
  (example, text) => {
    const named = [...text.matchAll(/`(\S+\/\S+\.\w+)`/g)].flatMap(([, file = '']) =>
      file.endsWith('en.json')
        ? ['en', 'ja', 'th', 'zh'].map((language) => file.replace('en.json', `${language}.json`))
        : [file],
    )
    const column = example.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    const mentioning = files.filter((file) => {
      if (!/^(src|web|test|tools)\/|^docs\/(?!decisions).*\.md$/.test(file)) return false
      const content = readFileSync(`${ROOT}/${file}`, 'utf8')
      return content.includes(example) || content.includes(column)
    })
    expect(mentioning).toEqual(expect.arrayContaining(named))
    // A recipe may leave out tests, tools, and with "at least" what only some such members need.
    const needed = mentioning.filter((file) => /^(src|web|docs)\//.test(file))
    if (!text.includes('at least')) expect(named).toEqual(expect.arrayContaining(needed))
  },
)

it('docs/attacks.md names a test that exists for each attack', () => {
  const table = readFileSync(`${ROOT}/docs/attacks.md`, 'utf8').match(/^\|(?! attack |-).*$/gm) ?? []
  const cells = table.map((row) => [...(row.split('|').at(-2) ?? '').matchAll(/`([^`]+)`/g)])
  expect(cells.filter((found) => found.length === 0)).toEqual([])
  const names = cells.flat().map(([, name]) => name)
  expect(names.length).toBeGreaterThan(100)
  expect(names.filter((name) => !files.includes(`test/${name}.test.ts`))).toEqual([])
})

it('docs/verify.md names checks and reasons that exist, and each of them', () => {
  const rows = readFileSync(`${ROOT}/docs/verify.md`, 'utf8').match(/^\|(?! fault |-).*$/gm) ?? []
  const codesIn = (column: number) =>
    rows.flatMap((row) => [...(row.split('|')[column] ?? '').matchAll(/`(\w+)`/g)].map(([, code]) => code))
  // A call that LINE refuses for another reason, and a test that fails for a new one, say what LINE said.
  const unnamed = ['call_refused', 'test_failed', 'nothing_to_test']
  expect([...new Set(codesIn(2)), ...unnamed].sort()).toEqual([...FAILURE_REASONS].sort())
  // These are no faults of the account's set-up.
  const others = ['deliveries_failed', 'events_unapplied', 'endpoint_failing', 'endpoint_failed']
  expect([...new Set(codesIn(3)), ...others].sort()).toEqual(Object.keys(REASONS).sort())
})

/** A measurement: the first release with what was measured, the date, and the commit. */
const MEASURED = /(\d+\.\d+)\.\d+,\s\d{4}-\d\d-\d\d,\s[0-9a-f]{8}/g
const FIGURE = /\d ?(?:\/s\b|µs|ms\b)|\d \w+ (?:per|a) second\b/

it.each(['README.md', 'bench/README.md', 'bench/soak/README.md', 'docs/comparison.md'])(
  '%s cites a measurement in each section with figures',
  (document) => {
    const sections = readFileSync(`${ROOT}/${document}`, 'utf8').split(/^## /m)
    const uncited = sections.filter((section) => FIGURE.test(section) && !section.match(MEASURED))
    // A refused change is not measured again.
    expect(uncited.map((section) => section.split('\n')[0])).toEqual(
      document === 'bench/README.md' ? ['What was refused'] : [],
    )
  },
)

it('no document cites a measurement that is older than two releases', () => {
  const { version } = JSON.parse(readFileSync(`${ROOT}/package.json`, 'utf8')) as { version: string }
  const changelog = readFileSync(`${ROOT}/CHANGELOG.md`, 'utf8')
  const released = [...changelog.matchAll(/^## \[(\d+\.\d+)\.\d+\]/gm)].map(([, minor]) => minor as string)
  const minors = [...new Set([version.split('.', 2).join('.'), ...released])]
  const cited = documents.flatMap((document) =>
    [...readFileSync(`${ROOT}/${document}`, 'utf8').matchAll(MEASURED)].map(([text, minor = '']) => ({
      where: `${document}: ${text}`,
      isOld: minors.indexOf(minor) > 2,
    })),
  )
  expect(cited.length).toBeGreaterThan(20)
  expect(cited.filter(({ isOld }) => isOld).map(({ where }) => where)).toEqual([])
})

// A decision explains what the forbidden form does.
const instructions = documents.filter((document) => !document.startsWith('docs/decisions/'))

it.each(instructions)(
  '%s runs no package of a stranger: outside a checkout, npx would download one',
  (document) => {
    const text = readFileSync(`${ROOT}/${document}`, 'utf8')
    expect(text.match(/npx (?!--no )\S*oa-audience.*/g) ?? []).toEqual([])
  },
)
