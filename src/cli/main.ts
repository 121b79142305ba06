#!/usr/bin/env node
import './require-node.mjs'
import cluster from 'node:cluster'
import { constants } from 'node:os'

// A reader such as head may close the pipe early, which is a success. A full disk is not.
process.stdout.on('error', (error: Error & { code?: string }) => {
  if (error.code === 'EPIPE') process.exit()
  console.error(`oa-audience: standard output cannot be written (${error.code})`)
  process.exit(1)
})
// The kernel ignores a signal to the first process of a container unless the process handles it. A command that handles it itself
// has a second listener.
if (process.pid === 1)
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) process.exit(128 + constants.signals[signal])
    })
// Not a static import: all of those are linked before the version of Node.js is checked.
const { run } = await import('./run.ts')
await run(process.argv.slice(2), process)
// The IPC channel to the first process would keep a worker running that failed to start.
if (process.exitCode && cluster.isWorker) process.exit()
