/** A PgBouncer between a service and the test server. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { freePort } from '../../tools/prove/service.ts'
import { eventually, temporaryDirectory } from './process.ts'
import { startWireLog } from './wire-log.ts'

/** Debian installs it in /usr/sbin, which is not on every PATH. */
const PATH = `${process.env.PATH}:/usr/sbin`

export const isPgBouncerInstalled =
  spawnSync('pgbouncer', ['--version'], { env: { PATH } }).error === undefined

const NOBODY = 65_534

export interface PgBouncerSettings {
  pool_mode: 'session' | 'transaction' | 'statement'
  server_round_robin?: 0 | 1
}

/** Starts PgBouncer for one test and returns the address of the database behind it. */
export async function startPgBouncer(connection: Connection, settings: PgBouncerSettings): Promise<string> {
  // PgBouncer refuses to run as root, and only the server's user and root may open its socket.
  const proxy = await startWireLog(connection)
  onTestFinished(proxy.close)
  const { host, port, user, database } = proxy.connection
  const directory = temporaryDirectory()
  const listenPort = await freePort()
  const lines = Object.entries({
    listen_addr: '127.0.0.1',
    listen_port: listenPort,
    unix_socket_dir: '',
    auth_type: 'any',
    ...settings,
  }).map(([name, value]) => `${name} = ${value}`)
  const file = join(directory, 'pgbouncer.ini')
  writeFileSync(
    file,
    `[databases]\n* = host=${host} port=${port} user=${user}\n[pgbouncer]\n${lines.join('\n')}\n`,
  )
  chmodSync(directory, 0o755)
  const child = spawn('pgbouncer', ['-q', file], {
    env: { PATH },
    stdio: ['ignore', 'ignore', 'pipe'],
    ...(process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {}),
  })
  let output = ''
  child.stderr.on('data', (chunk) => {
    output += chunk
  })
  const exited = once(child, 'exit')
  onTestFinished(async () => {
    child.kill('SIGTERM')
    await exited
  })
  await eventually(
    async () => {
      const socket = connect(listenPort, '127.0.0.1')
      await once(socket, 'connect')
      socket.destroy()
      return 'open'
    },
    (answer) => {
      if (child.exitCode !== null) throw new Error(`pgbouncer exited: ${output}`)
      return answer === 'open'
    },
  )
  return `postgres://${user}@127.0.0.1:${listenPort}/${database}`
}
