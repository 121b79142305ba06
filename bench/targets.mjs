/** The measured programs: processes that listen on a port, and pgbench. */
import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connectionUrl } from '../dist/src/postgres/embedded/server.js'

/** The service's program. */
export const MAIN = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))

let started = 0

/** Starts a script that listens on PORT; resolves when it does. */
export async function startTarget(args, env) {
  // Below the ephemeral ports, any of which may be in use.
  const port = 20_000 + started + (process.pid % 10_000)
  started += 1
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env.PATH, PORT: String(port), ...env },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  await listening(port)
  return { port, child }
}

/** Starts the service; resolves when it is healthy. */
export async function startService(env) {
  const target = await startTarget([MAIN, 'serve'], { RATE_LIMIT_MAX: '1000000000', ...env })
  for (let isWell = false; !isWell; await sleep(20)) {
    isWell = await fetch(`http://127.0.0.1:${target.port}/api/health`).then(({ ok }) => ok)
  }
  return target
}

export const urlOf = ({ connection }) => connectionUrl(connection)

/**
 * Runs a script in PostgreSQL alone. Null if pgbench is not installed.
 * @returns {{perSecond: number, latencyMs: number} | null} of transactions
 */
export function pgbench({ server, directory, script, clients, seconds }) {
  if (spawnSync('pgbench', ['--version']).status !== 0) {
    console.log('pgbench is not installed: no comparison with it (apt-get install postgresql-contrib)')
    return null
  }
  const file = join(directory, 'script.sql')
  writeFileSync(file, `${script}\n`)
  const { host, user, database } = server.connection
  const limits = ['-c', String(clients), '-j', clients > 1 ? '2' : '1', '-T', String(seconds)]
  const { stdout, stderr } = spawnSync(
    'pgbench',
    ['-n', '-M', 'prepared', '-f', file, ...limits, '-h', host, '-U', user, database],
    { encoding: 'utf8' },
  )
  const perSecond = Number(/tps = ([\d.]+)/.exec(stdout)?.[1])
  if (!(perSecond > 0)) throw new Error(`pgbench failed: ${stderr}`)
  return { perSecond, latencyMs: Number(/latency average = ([\d.]+)/.exec(stdout)?.[1]) }
}

async function listening(port) {
  for (let attempt = 0; attempt < 1_200; attempt += 1) {
    const open = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false))
      socket.on('connect', () => socket.destroy())
    })
    if (open) {
      await sleep(500)
      return
    }
    await sleep(50)
  }
  throw new Error(`nothing listens on ${port}`)
}
