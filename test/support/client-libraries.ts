/** The table of client libraries in docs/api.md. Tests run each library with the setting that its row shows. */
import { readFileSync } from 'node:fs'
import { expect } from 'vitest'
import type { Service } from './service.ts'

const ROOT = new URL('../../', import.meta.url)
const ROWS = /^\| `@.*$/gm
const ROW = /^\| `(@[^`]+)` \| ([\d.]+) \| (Node|browser|browser, batches) \| `([^`]+)` \|$/gm

export interface ListedLibrary {
  /** what a program imports */
  library: string
  version: string
  runsIn: string
  /** a JavaScript expression with the exports of the library and TRACKING_KEY in scope */
  setting: string
}

export function listedLibraries(): ListedLibrary[] {
  const text = readFileSync(new URL('docs/api.md', ROOT), 'utf8')
  const libraries = [...text.matchAll(ROW)].map(
    ([, library = '', version = '', runsIn = '', setting = '']) => ({
      library,
      version,
      runsIn,
      setting,
    }),
  )
  // A row that no test reads could show any setting.
  expect(libraries).toHaveLength(text.match(ROWS)?.length ?? 0)
  return libraries
}

/** The version of the package that an import like `@scope/name/export` belongs to. */
export function installedVersion(library: string): string {
  const [scope, name] = library.split('/')
  const manifest = new URL(`node_modules/${scope}/${name}/package.json`, ROOT)
  return (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version
}

/** The setting for a service of a test, which listens without TLS. */
export function settingFor({ setting }: ListedLibrary, { url }: Service): string {
  return setting
    .replaceAll('https://oa.example.com', url)
    .replaceAll("apiHost: 'oa.example.com", `protocol: 'http', apiHost: '${new URL(url).host}`)
}
