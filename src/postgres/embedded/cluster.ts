/** The data directory of the embedded PostgreSQL: created once, and accessible to a server that does not run as root. */
import { spawnSync } from 'node:child_process'
import {
  chownSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs'
import { join } from 'node:path'
import { FatalError } from '../../errors.ts'
import type { Binaries } from './binaries.ts'
import { makeDirectories } from './directories.ts'

export const EMBEDDED_DATABASE = 'oa_audience'
export const SUPERUSER = 'postgres'
export const isRoot = process.getuid?.() === 0

/**
 * PostgreSQL refuses to run as root, so root starts the server with this user id. The id needs no entry in /etc/passwd.
 * Unlike nobody's, no other program is likely to use it, so only root and the server can read the data.
 */
const SERVER_UID = 55_432

/** The socket's name in the data directory. */
export const SOCKET = '.s.PGSQL.5432'

/** sun_path is 108 bytes on Linux and 104 on macOS, including the terminating zero. */
const SOCKET_PATH_MAX_BYTES = 100

/** Whether DATA_DIR has a database. */
export function hasCluster(dataDir: string): boolean {
  return existsSync(join(dataDir, 'postgres', 'PG_VERSION'))
}

/**
 * Creates DATA_DIR/postgres unless it exists: under a temporary name, then renamed, so that a kill leaves no partial
 * directory. Throws a FatalError if it cannot, or if another major version of PostgreSQL created it.
 */
export function makeCluster(dataDir: string, binaries: Binaries): string {
  const directory = join(dataDir, 'postgres')
  if (hasCluster(dataDir)) {
    requireMajor(directory, binaries.major)
    return directory
  }
  try {
    makeDirectories(dataDir)
    const made = mkdtempSync(join(dataDir, 'postgres.new-'))
    try {
      initdb(made, binaries)
      renameSync(made, directory)
    } finally {
      rmSync(made, { recursive: true, force: true })
    }
  } catch (error) {
    // Another process may have created it meanwhile: rename fails on a directory that is not empty.
    if (!hasCluster(dataDir)) {
      throw new FatalError(
        `cannot set up a PostgreSQL in DATA_DIR (${dataDir}): ${(error as Error).message}. ` +
          'Fix this, set DATA_DIR to another directory, or set DATABASE_URL=postgres://…',
      )
    }
  }
  return directory
}

/** PostgreSQL would only log that the files are incompatible. Throws a FatalError. */
function requireMajor(directory: string, major: string): void {
  const stored = readFileSync(join(directory, 'PG_VERSION'), 'utf8').trim()
  if (stored === major) return
  throw new FatalError(
    `${directory} has the format of PostgreSQL ${stored}, but this version of oa-audience runs PostgreSQL ${major}. ` +
      'Follow "Upgrade the embedded PostgreSQL" in docs/operations.md.',
  )
}

function initdb(directory: string, binaries: Binaries): void {
  // Unlike the server, initdb needs a user in /etc/passwd. It runs as nobody, and chownAll changes the owner afterwards.
  const nobody = isRoot ? findNobody() : null
  if (nobody) chownSync(directory, nobody.uid, nobody.gid)
  const path = nobody ? pathThatNeedsNoParents(directory) : directory
  const run = (binary: string, options: string[], input = '') => {
    const identity = { cwd: directory, env: serverEnvironment(), ...(nobody ?? {}) }
    const done = spawnSync(binary, options, { ...identity, input, encoding: 'utf8' })
    if (done.error) throw explainSpawn(done.error)
    if (/could not look up effective user ID/.test(done.stderr)) {
      throw new Error(`initdb needs a name for user id ${process.getuid?.()}: add it to /etc/passwd`)
    }
    if (done.status !== 0) throw new Error(done.stderr.trim().split('\n').at(-1))
  }
  const cluster = ['-D', path, '-U', SUPERUSER, '-A', 'trust', '-E', 'UTF8', '--no-instructions']
  // The builtin locale sorts identically on every machine, so the indexes of a copied data directory stay valid.
  run(binaries.initdb, [...cluster, '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'])
  // In single-user mode, so that the database exists before the first connection.
  run(binaries.postgres, ['--single', '-D', path, 'postgres'], `create database ${EMBEDDED_DATABASE}\n`)
  if (nobody) chownAll(directory, SERVER_UID)
}

/**
 * For root on Linux. DATA_DIR may be below a directory that only root can enter, such as /root. The server's working
 * directory is the data directory, and this path reaches it without entering its parents.
 */
export function pathThatNeedsNoParents(directory: string): string {
  return existsSync('/proc/self/cwd') ? '/proc/self/cwd' : directory
}

/**
 * A directory for the socket's path whose length is limited. On Linux, this process reaches a long one through a descriptor that
 * stays open. A symbolic link elsewhere could be deleted by a cleaner of temporary files. Throws a FatalError on macOS.
 */
export function shortPathTo(directory: string): string {
  if (Buffer.byteLength(join(directory, SOCKET)) <= SOCKET_PATH_MAX_BYTES) return directory
  if (existsSync('/proc/self/fd')) return `/proc/self/fd/${openSync(directory, 'r')}`
  const maximum = SOCKET_PATH_MAX_BYTES - Buffer.byteLength(join('postgres', SOCKET)) - 1
  throw new FatalError(
    `the path of DATA_DIR is too long for a unix socket. Set DATA_DIR to a path of at most ${maximum} bytes.`,
  )
}

export function serverEnvironment(): Record<string, string> {
  return { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }
}

function findNobody(): { uid: number; gid: number } {
  const entry =
    existsSync('/etc/passwd') && /^nobody:[^:]*:(\d+):(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'))
  if (!entry) {
    throw new Error('root may not run PostgreSQL and /etc/passwd has no user nobody: run as an ordinary user')
  }
  return { uid: Number(entry[1]), gid: Number(entry[2]) }
}

function explainSpawn(error: Error & { code?: string }): Error {
  if (error.code !== 'EPERM' && error.code !== 'EINVAL') return error
  return new Error(
    'root may not run PostgreSQL, and this container forbids changing the user: run as an ordinary user',
  )
}

function chownAll(path: string, uid: number): void {
  chownSync(path, uid, uid)
  if (!lstatSync(path).isDirectory()) return
  for (const name of readdirSync(path)) chownAll(join(path, name), uid)
}
