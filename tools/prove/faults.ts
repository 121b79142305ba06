/** The faults that `oa-audience prove` injects. */
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError } from '../../src/errors.ts'
import type { TcpProxy } from '../simulator/tcp-proxy.ts'
import type { Service } from './service.ts'

export interface Fault {
  name: string
  inject: () => Promise<void>
  /** The next fault waits until a delivery is acknowledged. */
  waitsForRecovery?: boolean
}

/** Time for PostgreSQL to restart after a kill, until its process can be killed again. */
const RESTART_WAIT_MS = 50
const CUT_MIN_MS = 50
const CUT_MAX_MS = 500

/** For the embedded server: kill the service, PostgreSQL, or both. */
export function faultsOfEmbedded(service: Service, dataDir: string): Fault[] {
  const pidFile = join(dataDir, 'postgres', 'postmaster.pid')
  const killPostgres = async () => {
    // While the server restarts, the file is absent or names a process that has ended.
    try {
      process.kill(Number(readFileSync(pidFile, 'utf8').split('\n')[0]), 'SIGKILL')
    } catch {
      await sleep(RESTART_WAIT_MS)
    }
  }
  const killBoth = async () => {
    await Promise.all([killPostgres(), restart(service)])
  }
  return [
    { name: 'service killed', inject: () => restart(service) },
    { name: 'PostgreSQL killed', inject: killPostgres },
    { name: 'both killed', inject: killBoth },
  ]
}

/** For an external server, which must stay up: kill the service, or cut its connections to the database. */
export function faultsOfExternal(service: Service, proxies: TcpProxy[]): Fault[] {
  const cutNetwork = async () => {
    for (const proxy of proxies) proxy.shut()
    await sleep(randomInt(CUT_MIN_MS, CUT_MAX_MS))
    for (const proxy of proxies) proxy.open()
  }
  return [
    { name: 'service killed', inject: () => restart(service) },
    { name: 'network cut', inject: cutNetwork },
  ]
}

/** For a replicated database: a command of the operator stops the primary and promotes a standby. */
export function faultsOfFailover(command: string): Fault[] {
  const failOver = async () => {
    const child = spawn(command, { shell: true, stdio: ['inherit', 'ignore', 'inherit'] })
    const [code] = await once(child, 'exit')
    if (code !== 0) throw new FatalError(`the failover command ended with ${code}`)
  }
  return [{ name: 'failover', inject: failOver, waitsForRecovery: true }]
}

async function restart(service: Service): Promise<void> {
  await service.kill()
  await service.start()
}
