/** The process that PostgreSQL's own lock file names. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'

/** The postmaster of a data directory, if that process lives and is one. */
export function findServer(directory: string): number | null {
  const pid = recordedProcess(directory)
  return pid !== null && isPostgres(pid) ? pid : null
}

/**
 * After a restart of a container the dead server's process id may belong to something else, and PostgreSQL
 * would refuse its own lock file for ever. A living process that is no postgres makes the file stale.
 */
export function removeStaleLockFile(directory: string): void {
  const pid = recordedProcess(directory)
  if (pid === null || isPostgres(pid)) return
  for (const name of ['postmaster.pid', '.s.PGSQL.5432.lock']) rmSync(join(directory, name), { force: true })
}

/** The process id in the lock file, if such a process lives, whatever it is. */
function recordedProcess(directory: string): number | null {
  try {
    const pid = Number.parseInt(readFileSync(join(directory, 'postmaster.pid'), 'utf8'), 10)
    process.kill(pid, 0)
    return pid
  } catch {
    return null
  }
}

export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch {
    // gone already
  }
}

/** Where nobody can tell, it is taken for one: better a clear failure than a deleted lock file. */
function isPostgres(pid: number): boolean {
  return /postgres|postmaster/.test(commandOf(pid) ?? 'postgres')
}

function commandOf(pid: number): string | null {
  if (existsSync('/proc/self/comm')) {
    try {
      return readFileSync(`/proc/${pid}/comm`, 'utf8')
    } catch {
      return null
    }
  }
  const listed = spawnSync('ps', ['-o', 'comm=', '-p', String(pid)], { encoding: 'utf8' })
  return listed.status === 0 ? listed.stdout : null
}
