/**
 * Bundles with Vite: libraries into the modules that re-export them, and the console, unless dist/web is newer than all its sources.
 * Installations without development dependencies have none of these libraries.
 */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const root = new URL('../', import.meta.url)
const pathOf = (name) => fileURLToPath(new URL(name, root))

/** The SDK contains copies of these packages, so their files are not among the bundled ones. */
const COPIED_BY_SDK = ['ajv', 'ajv-formats', 'fast-deep-equal', 'fast-uri', 'json-schema-traverse']

await bundleLibrary('dist/src/http/typebox.js', "from 'typebox")
await bundleLibrary('dist/src/assistant/sdk.js', "from '@modelcontextprotocol", {
  copiedPackages: COPIED_BY_SDK,
  minify: true,
})
await bundleConsole()

/**
 * Replaces a module with one that contains the packages it imports, and writes their licenses beside it.
 * @param before what the module contains unless it is bundled already
 */
async function bundleLibrary(module, before, { copiedPackages = [], minify = false } = {}) {
  const input = pathOf(module)
  // `npm run dev` compiles afterwards.
  if (!existsSync(input) || !readFileSync(input, 'utf8').includes(before)) return
  const output = await build({
    configFile: false,
    logLevel: 'warn',
    ssr: { noExternal: true },
    build: {
      ssr: input,
      outDir: dirname(input),
      emptyOutDir: false,
      target: 'node20',
      minify,
      rolldownOptions: { output: { codeSplitting: false } },
    },
  })
  const ids = output.output.flatMap(({ moduleIds = [] }) => moduleIds)
  const names = ids.map((id) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1])
  const packages = [...new Set([...names.filter(Boolean), ...copiedPackages])].sort()
  writeFileSync(input.replace(/\.js$/, '.licenses.txt'), packages.map(licenseOf).join('\n\n'))
}

function licenseOf(name) {
  const directory = pathOf(`node_modules/${name}`)
  const file = readdirSync(directory).find((each) => /^licen[cs]e(\.\w+)?$/i.test(each))
  if (file === undefined)
    throw new Error(`${basename(directory)} has no license file, and the bundle must contain its text`)
  return `${name}\n\n${readFileSync(join(directory, file), 'utf8').trim()}\n`
}

async function bundleConsole() {
  const page = new URL('dist/web/index.html', root)
  const modifiedMs = (url) => statSync(url).mtimeMs
  // Pages import texts of src/, too.
  const sources = ['web/', 'src/'].flatMap((directory) =>
    readdirSync(new URL(directory, root), { recursive: true }).map((name) => new URL(directory + name, root)),
  )
  const newest = Math.max(...[...sources, new URL('package-lock.json', root)].map(modifiedMs))
  if (existsSync(page) && modifiedMs(page) >= newest) return
  await build({ configFile: pathOf('web/vite.config.ts') })
}
