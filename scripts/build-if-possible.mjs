/** Builds dist/ if the compiler is installed. Without it, after npm ci --omit=dev, an earlier build is used. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'

const exists = (path) => existsSync(new URL(`../${path}`, import.meta.url))
// A release has no tsconfig.json: it is complete, and the compiler may be installed nevertheless.
const canBuild = ['tsconfig.json', 'node_modules/typescript', 'node_modules/vite'].every(exists)
const isBuilt = exists('dist/src/cli/main.js') && exists('dist/web/index.html')

if (canBuild) {
  process.exitCode = spawnSync('npm', ['run', '--silent', 'build'], { stdio: 'inherit' }).status ?? 1
} else if (isBuilt) {
  console.error('oa-audience: the compiler is not installed, so dist/ is used as it is.')
} else {
  console.error(
    'oa-audience: dist/ is missing, and the compiler is not installed. Run "npm ci" without --omit=dev, or copy dist/ here.',
  )
  // An installation succeeds, because dist/ may be copied afterwards. A start cannot.
  process.exitCode = process.env.npm_lifecycle_event === 'prepare' ? 0 : 1
}
