/** The process of the embedded PostgreSQL: its settings, how it is started, and its log. */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { FatalError } from '../../errors.ts'
import type { Binaries } from './binaries.ts'
import { isRoot, pathThatNeedsNoParents, serverEnvironment } from './cluster.ts'
import { removeStaleLockFile } from './lock-file.ts'

export const SETTINGS = {
  listen_addresses: '',
  // Relative to the data directory, which is the server's working directory, so the path is never too long.
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

/** Starts a server on the data directory. Throws a FatalError if its log cannot be written. */
export function startPostmaster(
  binaries: Binaries,
  directory: string,
  chosen: typeof SETTINGS,
): ChildProcess {
  removeStaleLockFile(directory)
  const log = openLog(directory)
  const path = isRoot ? pathThatNeedsNoParents(directory) : directory
  const settings = Object.entries(chosen).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const child = spawn(binaries.postgres, ['-D', path, ...settings], {
    cwd: directory,
    env: serverEnvironment(),
    ...(isRoot ? ownerOf(directory) : {}),
    // A process group of its own: Ctrl-C in a terminal must reach only the service, which then stops the server.
    detached: true,
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  child.unref()
  return child
}

/** If root starts the service once, a directory of an ordinary user keeps its owner. */
function ownerOf(directory: string): { uid: number; gid: number } {
  const { uid, gid } = statSync(directory)
  return { uid, gid }
}

export function lastLogLine(directory: string): string | undefined {
  try {
    return readFileSync(logPath(directory), 'utf8').trim().split('\n').at(-1) || undefined
  } catch {
    return undefined
  }
}

function openLog(directory: string): number {
  const path = logPath(directory)
  try {
    return openSync(path, 'a', 0o600)
  } catch (error) {
    const { code } = error as { code?: string }
    throw new FatalError(
      `DATA_DIR cannot be used: ${path} is not writable (${code}). Make it writable, or set DATA_DIR to another directory`,
    )
  }
}

function logPath(directory: string): string {
  return join(directory, '..', 'postgres.log')
}
