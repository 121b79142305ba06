/**
 * Bundles with Vite into the given directory: libraries into the modules that re-export them, and the console, unless dist/web is newer
 * than all its sources. Installations without development dependencies have none of these libraries.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { build } from 'vite'
import { modifiedMs, pathOf } from './sources.mjs'

const [directory] = process.argv.slice(2)

/** The SDK contains copies of these packages, so their files are not among the bundled ones. */
const COPIED_BY_SDK = ['ajv', 'ajv-formats', 'fast-deep-equal', 'fast-uri', 'json-schema-traverse']

await bundleLibrary(`${directory}/src/http/typebox.js`, "from 'typebox")
await bundleLibrary(`${directory}/src/assistant/sdk.js`, "from '@modelcontextprotocol", {
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
  writeLicenses(input.replace(/\.js$/, '.licenses.txt'), output, copiedPackages)
}

/** scripts/release.mjs reads the names of the packages. */
function writeLicenses(file, { output }, copiedPackages = []) {
  const ids = output.flatMap(({ moduleIds = [] }) => moduleIds)
  const names = ids.map((id) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]).filter(Boolean)
  const texts = [...new Set([...names, ...copiedPackages])].sort().map((name) => {
    // A copied package may have another version than the installed one.
    const version = names.includes(name) ? `@${versionOf(name)}` : ''
    return `# ${name}${version}\n\n${licenseOf(name)}`
  })
  writeFileSync(file, texts.join('\n\n'))
}

function versionOf(name) {
  return JSON.parse(readFileSync(pathOf(`node_modules/${name}/package.json`), 'utf8')).version
}

function licenseOf(name) {
  const installed = pathOf(`node_modules/${name}`)
  const file = readdirSync(installed).find((each) => /^licen[cs]e(\.\w+)?$/i.test(each))
  if (file === undefined)
    throw new Error(`${basename(installed)} has no license file, and the bundle must contain its text`)
  return `${readFileSync(join(installed, file), 'utf8').trim()}\n`
}

async function bundleConsole() {
  const page = 'dist/web/index.html'
  // Pages import texts of src/, too.
  const newest = modifiedMs('web', 'src', 'package-lock.json')
  if (existsSync(pathOf(page)) && modifiedMs(page) >= newest) return
  const outDir = pathOf(`${directory}/web`)
  writeLicenses(
    `${outDir}/licenses.txt`,
    await build({ configFile: pathOf('web/vite.config.ts'), build: { outDir } }),
  )
}
