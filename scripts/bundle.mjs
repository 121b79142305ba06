/** Bundles with Vite: TypeBox into the service's src/http/typebox.ts, and the console, unless dist/web is newer than all its sources. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const root = new URL('../', import.meta.url)
const pathOf = (name) => fileURLToPath(new URL(name, root))

await bundleTypeBox()
await bundleConsole()

async function bundleTypeBox() {
  const input = pathOf('dist/src/http/typebox.js')
  // `npm run dev` compiles afterwards.
  if (!existsSync(input) || !readFileSync(input, 'utf8').includes("from 'typebox")) return
  await build({
    configFile: false,
    logLevel: 'warn',
    ssr: { noExternal: true },
    build: {
      ssr: input,
      outDir: pathOf('dist/src/http'),
      emptyOutDir: false,
      target: 'node20',
      minify: false,
    },
  })
}

async function bundleConsole() {
  const page = new URL('dist/web/index.html', root)
  const modifiedMs = (url) => statSync(url).mtimeMs
  const sources = readdirSync(new URL('web/', root), { recursive: true }).map(
    (name) => new URL(`web/${name}`, root),
  )
  const newest = Math.max(...[...sources, new URL('package-lock.json', root)].map(modifiedMs))
  if (existsSync(page) && modifiedMs(page) >= newest) return
  await build({ configFile: pathOf('web/vite.config.ts') })
}
