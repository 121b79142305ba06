#!/usr/bin/env node
import cluster from 'node:cluster'
import { run } from './run.ts'

// A reader such as head may close the pipe early, which is a success. A full disk is not.
process.stdout.on('error', (error: Error & { code?: string }) => {
  if (error.code === 'EPIPE') process.exit()
  console.error(`oa-audience: standard output cannot be written (${error.code})`)
  process.exit(1)
})
await run(process.argv.slice(2), process)
// The IPC channel to the first process would keep a worker running that failed to start.
if (process.exitCode && cluster.isWorker) process.exit()
