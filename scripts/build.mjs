/**
 * Builds dist/. Compiles and bundles beside it, then replaces each file by a rename, so that a command that starts meanwhile reads no
 * unfinished file. If the compiler finds an error, dist/ stays as it is.
 */
import '../src/cli/require-node.mjs'
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { modifiedMs, pathOf } from './sources.mjs'

const PROGRAM = 'src/cli/main.js'
const SOURCES = [
  'src',
  'tools',
  'web',
  'scripts',
  'tsconfig.json',
  'tsconfig.build.json',
  'package-lock.json',
]
/** A build that was killed leaves its directory. No build takes longer. */
const BUILD_MAX_MS = 3_600_000

const startedAt = new Date()
const next = `dist.${process.pid}`
const isCurrent =
  existsSync(pathOf(`dist/${PROGRAM}`)) && modifiedMs(`dist/${PROGRAM}`) > modifiedMs(...SOURCES)
if (!(process.argv.includes('--if-newer') && isCurrent)) {
  process.on('exit', () => rmSync(pathOf(next), { recursive: true, force: true }))
  removeRemains()
  run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--outDir', next)
  run('scripts/bundle.mjs', next)
  run('scripts/generate-console-openapi.mjs', next)
  chmodSync(pathOf(`${next}/${PROGRAM}`), 0o755)
  // A source that changes during the build is newer than this.
  utimesSync(pathOf(`${next}/${PROGRAM}`), startedAt, startedAt)
  for (const part of readdirSync(pathOf(next))) replace(part)
}

function run(...args) {
  const { status } = spawnSync(process.execPath, args, { cwd: pathOf(''), stdio: 'inherit' })
  if (status !== 0) process.exit(status || 1)
}

function removeRemains() {
  for (const name of readdirSync(pathOf('')).filter((each) => /^dist\.\d+$/.test(each)))
    if (Date.now() - statSync(pathOf(name)).mtimeMs > BUILD_MAX_MS) rmSync(pathOf(name), { recursive: true })
}

/** @param part `src`, `tools`, `docs`, or `web`, which is built only if it has changed */
function replace(part) {
  const built = filesBelow(`${next}/${part}`)
  for (const file of built) {
    mkdirSync(dirname(pathOf(`dist/${part}/${file}`)), { recursive: true })
    renameSync(pathOf(`${next}/${part}/${file}`), pathOf(`dist/${part}/${file}`))
  }
  const current = new Set(built)
  for (const file of filesBelow(`dist/${part}`).filter((each) => !current.has(each)))
    rmSync(pathOf(`dist/${part}/${file}`), { force: true })
}

function filesBelow(directory) {
  const names = readdirSync(pathOf(directory), { recursive: true })
  return names.filter((name) => statSync(pathOf(`${directory}/${name}`)).isFile())
}
