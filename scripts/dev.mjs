/** `npm run dev`: compiles changed files and restarts the service. Ctrl-C ends both. */
import '../src/cli/require-node.mjs'
import { spawn, spawnSync } from 'node:child_process'
import { createInterface } from 'node:readline'

// The console's pages, if they have changed. It is not rebuilt while the service runs.
spawnSync(process.execPath, ['scripts/bundle.mjs', 'dist'], { stdio: 'inherit' })
const compiler = spawn(
  process.execPath,
  ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--watch', '--preserveWatchOutput'],
  // A process group of its own, because tsc is a script whose child would survive it.
  { stdio: ['ignore', 'pipe', 'inherit'], detached: true },
)
let service = null
createInterface({ input: compiler.stdout }).on('line', (line) => {
  console.log(line)
  // Only when all files are written. Otherwise the service would restart for each of them.
  if (service !== null || !line.includes('Watching for file changes')) return
  service = spawn(
    process.execPath,
    ['--enable-source-maps', '--watch', '--watch-preserve-output', 'dist/src/cli/main.js', 'serve'],
    { stdio: 'inherit' },
  )
  service.on('exit', (code) => process.exit(code ?? 0))
})
compiler.on('exit', (code) => process.exit(code ?? 1))
process.on('exit', () => {
  try {
    process.kill(-compiler.pid, 'SIGTERM')
  } catch {
    // The compiler has ended already.
  }
})
for (const signal of ['SIGTERM', 'SIGINT']) {
  process.on(signal, () => {
    if (service === null) process.exit(0)
    service.kill('SIGTERM')
  })
}
