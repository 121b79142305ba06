/**
 * `npm pack` bundles the dependencies of node_modules and leaves package-lock.json out. This script refuses to bundle other versions than
 * the locked ones, and writes the lock under the name that npm packs and that `npm ci` reads.
 */
import { copyFileSync, readFileSync } from 'node:fs'

const root = new URL('../', import.meta.url)
const readJson = (path) => JSON.parse(readFileSync(new URL(path, root), 'utf8'))

const locked = readJson('package-lock.json').packages
const installed = readJson('node_modules/.package-lock.json').packages
const different = Object.keys(locked).filter(
  (path) => locked[path].inBundle && installed[path]?.version !== locked[path].version,
)

if (different.length > 0) {
  console.error(
    `oa-audience: these are not the versions of package-lock.json: ${different.join(', ')}. Run "npm ci".`,
  )
  process.exitCode = 1
} else {
  copyFileSync(new URL('package-lock.json', root), new URL('npm-shrinkwrap.json', root))
}
