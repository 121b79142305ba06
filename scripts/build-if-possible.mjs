/**
 * Builds dist/ if the compiler is installed: an installation always, a start only if a source is newer than the build. Without the compiler,
 * after npm ci --omit=dev, an earlier build is used.
 */
import '../src/cli/require-node.mjs'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'

const root = new URL('../', import.meta.url)
const exists = (path) => existsSync(new URL(path, root))
// A release has no tsconfig.json: it is complete, and the compiler may be installed nevertheless.
const canBuild = ['tsconfig.json', 'node_modules/typescript', 'node_modules/vite'].every(exists)
const isBuilt = exists('dist/src/cli/main.js') && exists('dist/web/index.html')
const isInstallation = process.env.npm_lifecycle_event === 'prepare'

if (canBuild) {
  const args = ['scripts/build.mjs', ...(isInstallation || !isBuilt ? [] : ['--if-newer'])]
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' })
  process.exitCode = status === null ? 1 : status
} else if (isBuilt) {
  console.error('oa-audience: the compiler is not installed, so dist/ is used as it is.')
} else {
  console.error(
    'oa-audience: dist/ is missing, and the compiler is not installed. Run "npm ci" without --omit=dev, or copy dist/ here.',
  )
  // An installation succeeds, because dist/ may be copied afterwards. A start cannot.
  process.exitCode = isInstallation ? 0 : 1
}
