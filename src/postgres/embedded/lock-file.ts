/** PostgreSQL's lock file (postmaster.pid) and the process that it names. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readlinkSync, realpathSync, rmSync } from 'node:fs'
import { join } from 'node:path'

/** The process id of the postmaster of a data directory, or null if none runs. */
export function findServer(directory: string): number | null {
  const pid = recordedProcess(directory)
  return pid !== null && isPostgres(pid) ? pid : null
}

/**
 * Whether a process id in a lock file really is the server of that data directory, which is its working directory. After a
 * restart of the machine the id may belong to another PostgreSQL. False if unknown, as on macOS.
 */
export function isServerOf(directory: string, pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === realpathSync(directory)
  } catch {
    return false
  }
}

/**
 * After a container restart, the dead server's process id may belong to another program, and PostgreSQL would never
 * start. A lock file whose process is not a PostgreSQL is stale.
 */
export function removeStaleLockFile(directory: string): void {
  const pid = recordedProcess(directory)
  if (pid === null || isPostgres(pid)) return
  for (const name of ['postmaster.pid', '.s.PGSQL.5432.lock']) rmSync(join(directory, name), { force: true })
}

/** The process id in the lock file, if any process with this id runs. */
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
    // The process has already exited.
  }
}

/** True if the command is unknown: a failed start is better than deleting the lock file of a running server. */
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
