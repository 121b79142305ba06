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

/** `intake/line` for `intake/line/routes.ts`. A file in the root, such as `app.ts`, stands for itself. */
const folderOf = (file: string) => (dirname(file) === '.' ? file : dirname(file))

/** Files that any other may import. */
const LEAVES = [
  'errors.ts',
  'config.ts',
  'config-parsers.ts',
  'config-variables.ts',
  'database-url.ts',
  'limits.ts',
  'line-day.ts',
  'secret.ts',
  'typebox.ts',
  'package.ts',
  'observability/facts.ts',
]

/** The folders that each folder may import, besides itself and the leaves. */
const ALLOWED: Record<string, string[]> = {
  http: ['postgres'],
  postgres: ['postgres/embedded'],
  'postgres/embedded': [],
  access: ['accounts', 'postgres'],
  'line-api': ['http'],
  accounts: ['access', 'http', 'line-api', 'postgres'],
  audience: ['access', 'accounts', 'http', 'line-api', 'postgres'],
  intake: [
    'accounts',
    'audience',
    'http',
    'intake/line',
    'intake/mbox',
    'intake/tracking',
    'line-api',
    'postgres',
  ],
  endpoints: ['accounts', 'audience', 'http', 'intake', 'intake/line', 'postgres'],
  maintenance: ['endpoints', 'postgres'],
  monitoring: ['accounts', 'line-api', 'postgres'],
  observability: ['http'],
  console: ['accounts', 'audience', 'endpoints', 'http', 'observability', 'operator', 'postgres'],
  operator: ['access', 'accounts', 'audience', 'endpoints', 'http', 'intake', 'postgres'],
  'intake/line': ['accounts', 'audience', 'http', 'intake', 'postgres'],
  'intake/mbox': ['accounts', 'http', 'intake', 'postgres'],
  'intake/tracking': ['accounts', 'http', 'intake', 'line-api', 'postgres'],
}

describe('imports', () => {
  it.each(Object.keys(ALLOWED))('of src/%s follow the allowed directions', (folder) => {
    const allowed = [folder, ...(ALLOWED[folder] as string[])]
    for (const file of files.filter((name) => dirname(name) === folder)) {
      for (const imported of importsOf(file))
        if (!LEAVES.includes(imported))
          expect(allowed, `${file} imports ${imported}`).toContain(folderOf(imported))
    }
  })

  it('of leaves are only other leaves', () => {
    for (const file of LEAVES) {
      for (const imported of importsOf(file))
        expect(LEAVES, `${file} imports ${imported}`).toContain(imported)
    }
  })

  it('of the folder of a source come from sources.ts alone', () => {
    for (const file of files.filter((name) => dirname(name) === 'intake' && name !== 'intake/sources.ts')) {
      for (const imported of importsOf(file)) expect(dirname(imported), file).not.toMatch(/^intake\//)
    }
  })

  it('are defined for every folder', () => {
    const folders = new Set(files.map((file) => dirname(file)))
    for (const free of ['.', 'cli']) folders.delete(free)
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
    for (const file of files.filter((name) => name !== 'config.ts')) {
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
    'maintenance/key-partitions.ts',
    'maintenance/partitions.ts',
    // Settings of a session.
    'postgres/connector.ts',
    // Texts of migrations/.
    'postgres/functions.ts',
    'postgres/migrate.ts',
    // Transaction commands.
    'postgres/statement.ts',
  ])
})
