/** Bundles with Vite: TypeBox into the service's src/typebox.ts, and the console, unless dist/console is newer than all its sources. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const root = new URL('../', import.meta.url)
const pathOf = (name) => fileURLToPath(new URL(name, root))

await bundleTypeBox()
await bundleConsole()

async function bundleTypeBox() {
  const input = pathOf('dist/src/typebox.js')
  // `npm run dev` compiles afterwards.
  if (!existsSync(input) || !readFileSync(input, 'utf8').includes("from 'typebox")) return
  await build({
    configFile: false,
    logLevel: 'warn',
    ssr: { noExternal: true },
    build: { ssr: input, outDir: pathOf('dist/src'), emptyOutDir: false, target: 'node20', minify: false },
  })
}

async function bundleConsole() {
  const page = new URL('dist/console/index.html', root)
  const modifiedMs = (url) => statSync(url).mtimeMs
  const sources = readdirSync(new URL('console/', root), { recursive: true }).map(
    (name) => new URL(`console/${name}`, root),
  )
  const newest = Math.max(...[...sources, new URL('package-lock.json', root)].map(modifiedMs))
  if (existsSync(page) && modifiedMs(page) >= newest) return
  await build({ configFile: pathOf('console/vite.config.ts') })
}
