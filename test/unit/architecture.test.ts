/** The direction of imports, as docs/architecture.md describes it. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

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
const LEAVES = [
  'errors.ts',
  'every.ts',
  'http/typebox.ts',
  'line-api/line-day.ts',
  'observability/facts.ts',
  'one-line.ts',
  'system-reason.ts',
]
const isLeaf = (file: string) => LEAVES.includes(file) || dirname(file) === 'config'

/** The folders that each folder may import, besides itself and the leaves. A folder stands for those below it. */
const ALLOWED: Record<string, string[]> = {
  http: ['postgres'],
  postgres: [],
  secrets: ['postgres'],
  access: ['accounts', 'postgres'],
  'line-api': ['http'],
  accounts: ['access', 'http', 'line-api', 'postgres'],
  audience: ['access', 'accounts', 'http', 'line-api', 'postgres'],
  intake: ['accounts', 'audience', 'http', 'line-api', 'postgres'],
  endpoints: ['accounts', 'audience', 'http', 'intake', 'postgres'],
  background: [
    'accounts',
    'audience',
    'endpoints',
    'http',
    'intake',
    'line-api',
    'observability',
    'operator',
    'postgres',
    'secrets',
  ],
  observability: ['http'],
  assistant: ['accounts', 'audience', 'http', 'operator', 'postgres'],
  operations: ['accounts', 'endpoints', 'http', 'operator', 'postgres'],
  operator: [
    'operations',
    'access',
    'accounts',
    'audience',
    'endpoints',
    'http',
    'intake',
    'line-api',
    'observability',
    'postgres',
    'secrets',
  ],
}

describe('imports', () => {
  it.each(Object.keys(ALLOWED))('of src/%s follow the allowed directions', (folder) => {
    const allowed = [folder, ...(ALLOWED[folder] as string[])]
    for (const file of files.filter((name) => folderOf(name) === folder)) {
      for (const imported of importsOf(file))
        if (!isLeaf(imported)) expect(allowed, `${file} imports ${imported}`).toContain(folderOf(imported))
    }
  })

  it('of leaves are only other leaves', () => {
    for (const file of files.filter(isLeaf)) {
      for (const imported of importsOf(file))
        expect(isLeaf(imported), `${file} imports ${imported}`).toBe(true)
    }
  })

  it('of the folder of a source come from that folder and sources.ts alone', () => {
    for (const file of files.filter((name) => folderOf(name) === 'intake' && name !== 'intake/sources.ts')) {
      for (const imported of importsOf(file).filter((name) => name.startsWith('intake/')))
        expect(['intake', dirname(file)], `${file} imports ${imported}`).toContain(dirname(imported))
    }
  })

  it('of the console come from main.ts alone', () => {
    for (const file of files.filter((name) => name !== 'main.ts' && dirname(name) !== 'operator/console')) {
      for (const imported of importsOf(file)) expect(dirname(imported), file).not.toBe('operator/console')
    }
  })

  it('of operations come from the console and the command line alone', () => {
    for (const file of files.filter(
      (name) => !['operator/console', 'cli', 'operations'].includes(dirname(name)),
    )) {
      for (const imported of importsOf(file)) expect(dirname(imported), file).not.toBe('operations')
    }
  })

  it('are defined for every folder', () => {
    const folders = new Set(files.filter((name) => name.includes('/')).map(folderOf))
    for (const free of ['cli', 'config']) folders.delete(free)
    expect([...folders].sort()).toEqual(Object.keys(ALLOWED).sort())
  })

  it('form no cycle', () => {
    const done = new Set<string>()
    const visit = (file: string, path: string[]) => {
      expect(path, `${[...path, file].join(' → ')}`).not.toContain(file)
      if (done.has(file)) return
      for (const imported of importsOf(file)) visit(imported, [...path, file])
      done.add(file)
    }
    for (const file of files) visit(file, [])
  })

  it('leave process.env to config.ts', () => {
    for (const file of files.filter((name) => name !== 'config/config.ts')) {
      expect(readFileSync(join(SRC, file), 'utf8'), file).not.toContain('process.env')
    }
  })
})

it('SQL that is not a registered constant is sent by few files', () => {
  const unregistered = files
    .filter((file) => /\bunnamed\(/.test(readFileSync(join(SRC, file), 'utf8')))
    .sort()
  expect(unregistered).toEqual([
    // Definitions of partitions, whose names are dates.
    'background/maintenance/partitions.ts',
    // Settings of a session, and the check that sessions are kept.
    'postgres/pool/connector.ts',
    'postgres/pool/pool.ts',
    // Texts of migrations/.
    'postgres/schema/migrate.ts',
    // Transaction commands.
    'postgres/statement.ts',
  ])
})
