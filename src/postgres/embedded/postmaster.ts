/** The process of the embedded PostgreSQL: its settings, start, log and lock file. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { closeSync, constants, existsSync, fchownSync, openSync, readFileSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError } from '../../errors.ts'
import { type Binaries, ENVIRONMENT, ownerOf, pathFor } from './cluster.ts'

export const SETTINGS = {
  listen_addresses: '',
  // Relative to the data directory, which is the working directory, so the path is never too long.
  unix_socket_directories: '.',
  unix_socket_permissions: '0700',
  max_connections: '100',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  timezone: 'UTC',
  log_timezone: 'UTC',
  // Statements and error details contain personal data, so neither is logged.
  log_min_messages: 'fatal',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_statement: 'none',
}

export function startPostmaster({ programs }: Binaries, directory: string, settings: object): ChildProcess {
  removeStaleLockFile(directory)
  const owner = ownerOf(directory)
  const log = openLog(directory, owner)
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const child = spawn(join(programs, 'postgres'), ['-D', pathFor(directory), ...options], {
    cwd: directory,
    env: ENVIRONMENT,
    ...owner,
    // Starts a separate process group. Ctrl-C in a terminal must reach only the service, which then stops the server.
    detached: true,
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  child.unref()
  return child
}

const logPath = (directory: string) => join(directory, '..', 'postgres.log')

/** Root must not follow a symbolic link, because the owner of DATA_DIR could link to any file. */
const APPEND = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW

function openLog(directory: string, { uid, gid }: ReturnType<typeof ownerOf>): number {
  try {
    const log = openSync(logPath(directory), APPEND, 0o600)
    if (uid !== undefined && gid !== undefined) fchownSync(log, uid, gid)
    return log
  } catch (error) {
    throw new FatalError(
      `DATA_DIR cannot be used (${(error as Error).message}). Make it writable, or set DATA_DIR to another directory.`,
    )
  }
}

/** On a full disk, the last line has no end. */
export function lastLogLine(directory: string): string | undefined {
  try {
    return readFileSync(logPath(directory), 'utf8').split('\n').at(-2)
  } catch {
    return undefined
  }
}

export function findServer(directory: string): number | null {
  const pid = recordedProcess(directory)
  return pid !== null && isPostgres(pid) ? pid : null
}

/** Ten minutes for the checkpoint of a large database. */
const STOP_MAX_MS = 600_000
const POLL_MS = 20

/** It follows EmbeddedServer.release, which waits only a few seconds. */
export async function waitUntilStopped(directory: string): Promise<void> {
  const deadline = Date.now() + STOP_MAX_MS
  while (findServer(directory) !== null) {
    if (Date.now() > deadline)
      throw new FatalError(
        `the PostgreSQL in ${directory} does not stop. Stop it, then run the command again.`,
      )
    await sleep(POLL_MS)
  }
}

/**
 * PostgreSQL does not start while a process has the id in its lock file: after a restart of the container any program, after a kill a
 * zombie until pid 1 reaps it.
 */
function removeStaleLockFile(directory: string): void {
  const pid = recordedProcess(directory)
  if (pid === null || isPostgres(pid)) return
  for (const name of ['postmaster.pid', '.s.PGSQL.5432.lock']) rmSync(join(directory, name), { force: true })
}

function recordedProcess(directory: string): number | null {
  try {
    const pid = Number.parseInt(readFileSync(join(directory, 'postmaster.pid'), 'utf8'), 10)
    process.kill(pid, 0)
    return pid
  } catch {
    return null
  }
}

/** False for a zombie, which has no command line. True if unknown: a running server must keep its lock file. */
function isPostgres(pid: number): boolean {
  try {
    const command = existsSync('/proc/self/cmdline')
      ? readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0', 1).join()
      : execFileSync('ps', ['-o', 'comm=', '-p', String(pid)], { encoding: 'utf8' }).trim()
    return basename(command) === 'postgres'
  } catch {
    return true
  }
}
