/** Builds the console with Vite, unless dist/console is newer than all of its sources. */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = new URL('../', import.meta.url)
const page = new URL('dist/console/index.html', root)

const modifiedMs = (url) => statSync(url).mtimeMs
const sources = readdirSync(new URL('console/', root), { recursive: true }).map(
  (name) => new URL(`console/${name}`, root),
)
const newest = Math.max(...[...sources, new URL('package-lock.json', root)].map(modifiedMs))

if (!existsSync(page) || modifiedMs(page) < newest) {
  // Imported only if it is needed, because loading it takes 0.3 s.
  const { build } = await import('vite')
  await build({ configFile: fileURLToPath(new URL('console/vite.config.ts', root)) })
}
