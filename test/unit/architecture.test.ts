/** The direction of imports, as docs/architecture.md describes it. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const SRC = fileURLToPath(new URL('../../src', import.meta.url))

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))

function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), 'utf8')
  return [...text.matchAll(/from '(\.[^']+)'/g)].map(([, path]) =>
    relative(SRC, join(SRC, dirname(file), path as string)),
  )
}

/** `intake` for `intake/line/line-source.ts`. A file in the root, such as `app.ts`, stands for itself. */
const folderOf = (file: string) => file.split('/')[0] as string

/** Files that any other may import, beside those of src/config/. */
const LEAVES = ['errors.ts', 'ids.ts', 'every.ts', 'line-api/line-day.ts']
const isLeaf = (file: string) => LEAVES.includes(file) || dirname(file) === 'config'

/** A folder may import the folders of the layers before it. Those of one layer may import each other in one direction. */
const LAYERS = [
  ['http', 'line-api', 'observability', 'postgres'],
  ['accounts', 'audience', 'endpoints', 'intake', 'jobs', 'operators', 'upkeep', 'watch'],
  ['operations'],
  ['assistant', 'cli', 'console'],
]
const EXCEPTIONS: Record<string, string[]> = {
  observability: [],
  postgres: ['observability'],
  // It reaches members and endpoints only by SQL functions and by handing over what it forwards.
  intake: ['accounts', 'http', 'line-api', 'observability', 'operators', 'postgres'],
  assistant: LAYERS.slice(0, 3).flat(),
  cli: LAYERS.slice(0, 3).flat(),
  console: LAYERS.slice(0, 3).flat(),
}

it.each(LAYERS.flat())('imports of src/%s follow the layers', (folder) => {
  const layer = LAYERS.findIndex((names) => names.includes(folder))
  const allowed = [folder, ...(EXCEPTIONS[folder] ?? LAYERS.slice(0, layer + 1).flat())]
  for (const file of files.filter((name) => folderOf(name) === folder)) {
    for (const imported of importsOf(file))
      if (!isLeaf(imported)) expect(allowed, `${file} imports ${imported}`).toContain(folderOf(imported))
  }
})

it('imports of leaves are only other leaves', () => {
  for (const file of files.filter(isLeaf)) {
    for (const imported of importsOf(file)) expect(isLeaf(imported), `${file} imports ${imported}`).toBe(true)
  }
})

it('imports of the folder of a source come from that folder and sources.ts alone', () => {
  for (const file of files.filter((name) => folderOf(name) === 'intake' && name !== 'intake/sources.ts')) {
    for (const imported of importsOf(file).filter((name) => name.startsWith('intake/')))
      expect(['intake', dirname(file)], `${file} imports ${imported}`).toContain(dirname(imported))
  }
})

it('imports are defined for every folder', () => {
  const folders = new Set(files.filter((name) => name.includes('/')).map(folderOf))
  folders.delete('config')
  expect([...folders].sort()).toEqual(LAYERS.flat().sort())
})

it.each([
  ['files', (file: string) => file],
  ['folders', folderOf],
])('imports of %s form no cycle', (_, nodeOf) => {
  const importsOfNode = (node: string) =>
    new Set(files.filter((file) => nodeOf(file) === node).flatMap((file) => importsOf(file).map(nodeOf)))
  const done = new Set<string>()
  const visit = (node: string, path: string[]) => {
    expect(path, `${[...path, node].join(' → ')}`).not.toContain(node)
    if (done.has(node)) return
    for (const imported of importsOfNode(node)) if (imported !== node) visit(imported, [...path, node])
    done.add(node)
  }
  for (const file of files) visit(nodeOf(file), [])
})

it('imports leave process.env to config.ts and libpq-variables.ts', () => {
  const readers = ['config/config.ts', 'config/libpq-variables.ts']
  for (const file of files.filter((name) => !readers.includes(name))) {
    expect(readFileSync(join(SRC, file), 'utf8'), file).not.toContain('process.env')
  }
})

it('setInterval is only in the shutdown of the server: everything else that repeats is a loop of every.ts', () => {
  const others = files.filter((file) => readFileSync(join(SRC, file), 'utf8').includes('setInterval('))
  expect(others).toEqual(['http/server.ts'])
})

it('SQL that is not a registered constant is sent by few files', () => {
  const unregistered = files
    .filter((file) => /\bunnamed\(/.test(readFileSync(join(SRC, file), 'utf8')))
    .sort()
  expect(unregistered).toEqual([
    // Settings of a session, and the check that sessions are kept.
    'postgres/pool/connector.ts',
    'postgres/pool/pool.ts',
    // Texts of migrations/.
    'postgres/schema/migrate.ts',
    // Transaction commands.
    'postgres/statement.ts',
    // Definitions of partitions, whose names are dates.
    'upkeep/partitions.ts',
  ])
})
