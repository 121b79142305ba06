/** `npm run dev`: compiles what changes and starts the service anew with it. Both end with this. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

const compiler = spawn(
  process.execPath,
  ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--watch', '--preserveWatchOutput'],
  // A process group of its own: tsc is a script that starts a program, which would live on.
  { stdio: ['ignore', 'pipe', 'inherit'], detached: true },
)
let service = null
createInterface({ input: compiler.stdout }).on('line', (line) => {
  console.log(line)
  // Once everything has been written: the service would be started anew for each file.
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
    // It is gone.
  }
})
for (const signal of ['SIGTERM', 'SIGINT']) {
  process.on(signal, () => {
    if (service === null) process.exit(0)
    service.kill('SIGTERM')
  })
}
