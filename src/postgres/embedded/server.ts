/**
 * The PostgreSQL server that the service runs by itself when DATABASE_URL is unset. It lives in
 * DATA_DIR/postgres, listens on a unix socket there and on no TCP port, and syncs every commit to disk.
 *
 * Who owns it is decided by the server itself: a service holds an advisory lock on it, which vanishes with
 * the service's connection. So a server whose lock is free has lost its service (kill -9) and is adopted by
 * the next one, and a server whose lock is held belongs to a running service, which must not be disturbed.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { FatalError } from '../../errors.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import {
  EMBEDDED_DATABASE,
  isRoot,
  makeCluster,
  pathThatNeedsNoParents,
  SUPERUSER,
  serverEnvironment,
  shortPathTo,
} from './cluster.ts'
import { findServer, removeStaleLockFile, sendSignal } from './lock-file.ts'

/** Any fixed numbers: the advisory lock that a running service holds, and the one that every user shares. */
const SERVICE_LOCK = 7_301_001
const USER_LOCK = 7_301_003

/** After a kill -9 of everything, the dead server's lock file and shared memory may linger for a second or two. */
const START_TIMEOUT_MS = 30_000
const RETRY_MS = 100
/** A fast shutdown ends every session and writes a checkpoint: normally under a second. */
const STOP_TIMEOUT_MS = 7_000
/** A server that is just being started again is waited for, so that it can be stopped. */
const REGAIN_MAX_MS = 1_000

const SETTINGS = {
  listen_addresses: '',
  // relative to the data directory, which the server makes its working directory: no path is ever too long
  unix_socket_directories: '.',
  unix_socket_permissions: '0700',
  max_connections: '100',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  timezone: 'UTC',
  log_timezone: 'UTC',
  // Statements and the details of errors hold personal text: neither goes into a log.
  log_min_messages: 'fatal',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_statement: 'none',
}

/** How to reach the server: options for pg. */
export interface Connection {
  host: string
  port: number
  user: string
  database: string
}

export class EmbeddedServer {
  readonly #directory: string
  readonly #binaries: Binaries
  readonly #socketDirectory: string
  /** holds our locks while we use the server; null before, and while the server is away */
  #client: pg.Client | null = null
  #child: ChildProcess | null = null
  #stopped = false
  #isOwner = false
  /** a server that died is being started again */
  #regaining: Promise<void> = Promise.resolve()

  /** Prepares DATA_DIR/postgres (initdb at the first time). Throws a FatalError that says what is in the way. */
  constructor(dataDir: string) {
    this.#binaries = findBinaries(isRoot)
    this.#directory = makeCluster(dataDir, this.#binaries)
    this.#socketDirectory = shortPathTo(this.#directory)
  }

  get connection(): Connection {
    return { host: this.#socketDirectory, port: 5432, user: SUPERUSER, database: EMBEDDED_DATABASE }
  }

  /**
   * For a service: starts or adopts the server and takes its lock, and keeps both while the service runs
   * (a server that dies is started again). Throws a FatalError if another service holds the directory.
   */
  async own(onLost: (error: Error) => void): Promise<void> {
    const client = await this.#reach()
    const { rows } = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [
      SERVICE_LOCK,
    ])
    if (rows[0]?.locked !== true) {
      const holder = await client.query<{ name: string }>(
        `select application_name as name from pg_locks join pg_stat_activity using (pid)
          where locktype = 'advisory' and objid = $1 and granted`,
        [SERVICE_LOCK],
      )
      await client.end()
      throw new FatalError(
        `DATA_DIR is in use by another oa-audience service (${holder.rows[0]?.name ?? 'unknown process'}): ` +
          'stop that one, or set DATA_DIR to another directory',
      )
    }
    this.#client = client
    this.#isOwner = true
    client.once('end', () => {
      this.#client = null
      if (this.#stopped) return
      onLost(new Error('the embedded PostgreSQL went away'))
      this.#regaining = this.#regain(onLost)
    })
  }

  /** For a command: starts the server unless one runs already, and keeps others from stopping it. */
  async use(): Promise<void> {
    await this.#client?.end().catch(() => undefined)
    this.#client = await this.#reach()
  }

  /** For a command that is done: stops the server, unless a service or another command is using it. */
  async release(): Promise<void> {
    const client = this.#client
    if (client === null) return
    try {
      await client.query('select pg_advisory_unlock_shared($1)', [USER_LOCK])
      const { rows } = await client.query<{ alone: boolean }>('select pg_try_advisory_lock($1) as alone', [
        USER_LOCK,
      ])
      if (rows[0]?.alone === true) await this.stop()
      else await client.end()
    } catch {
      // The server went away by itself, or was stopped by its service: nothing is left to release.
    }
    // From here on it is others' to stop.
    this.#stopped = true
  }

  /** Stops the server: sessions are ended, the data is left clean. Not when it is somebody else's by now. */
  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.race([this.#regaining, sleep(REGAIN_MAX_MS, undefined, { ref: false })])
    // A server that we have just started is ours before it has told us so.
    const isOurs = this.#client !== null || this.#child !== null
    const pid = findServer(this.#directory)
    // Our locks are held until the server is told: nobody takes it for free in between.
    for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
      if (!isOurs || pid === null || findServer(this.#directory) !== pid) break
      sendSignal(pid, signal)
      const deadline = Date.now() + STOP_TIMEOUT_MS
      // The server removes its pid file last. The process itself may linger as a zombie under a careless pid 1.
      while (Date.now() < deadline && findServer(this.#directory) === pid) await sleep(10)
    }
    await this.#client?.end().catch(() => undefined)
    if (this.#socketDirectory !== this.#directory) {
      rmSync(join(this.#socketDirectory, '..'), { recursive: true, force: true })
    }
  }

  /** Last resort when this process ends without stop(): asks the server that it owns or started to shut down. */
  abandon(): void {
    if (this.#stopped || (!this.#isOwner && this.#child === null)) return
    const pid = findServer(this.#directory) ?? this.#child?.pid
    if (pid !== undefined) sendSignal(pid, 'SIGINT')
  }

  async #regain(onLost: (error: Error) => void): Promise<void> {
    while (!this.#stopped) {
      try {
        return await this.own(onLost)
      } catch (error) {
        onLost(error as Error)
        await sleep(1000)
      }
    }
  }

  /** A connection to the server, which is started if it does not run. Keeps trying, bounded. */
  async #reach(): Promise<pg.Client> {
    const deadline = Date.now() + START_TIMEOUT_MS
    for (;;) {
      try {
        return await this.#connect()
      } catch (error) {
        if (this.#stopped || Date.now() > deadline) {
          const reason = this.#lastLogLine() ?? (error as Error).message
          throw new FatalError(`the embedded PostgreSQL in ${this.#directory} does not start: ${reason}`)
        }
        // Any other error comes from a server that lives: it is starting, stopping, or busy.
        const isNobodyThere = ['ENOENT', 'ECONNREFUSED'].includes((error as { code?: string }).code ?? '')
        if (isNobodyThere && this.#child === null) this.#spawn()
        await sleep(RETRY_MS)
      }
    }
  }

  /** A session that holds the lock which every user shares: while it lasts, no command stops the server. */
  async #connect(): Promise<pg.Client> {
    const client = new pg.Client({
      ...this.connection,
      application_name: `oa-audience, process ${process.pid}`,
      connectionTimeoutMillis: 5000,
    })
    client.on('error', () => undefined)
    try {
      await client.connect()
      await client.query('select pg_advisory_lock_shared($1)', [USER_LOCK])
      return client
    } catch (error) {
      await client.end().catch(() => undefined)
      throw error
    }
  }

  #spawn(): void {
    removeStaleLockFile(this.#directory)
    const log = this.#openLog()
    const settings = Object.entries(SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const child = spawn(this.#binaries.postgres, ['-D', this.#ownPath(), ...settings], {
      ...this.#asServer(),
      // a process group of its own: Ctrl-C in a terminal must reach the service, which then stops its server
      detached: true,
      stdio: ['ignore', log, log],
    })
    closeSync(log)
    child.unref()
    const gone = () => {
      this.#child = null
    }
    child.once('error', gone)
    child.once('exit', gone)
    this.#child = child
  }

  #openLog(): number {
    const path = join(this.#directory, '..', 'postgres.log')
    try {
      return openSync(path, 'a', 0o600)
    } catch (error) {
      throw new FatalError(
        `DATA_DIR cannot be used: ${path} cannot be written (${(error as { code?: string }).code})`,
      )
    }
  }

  #asServer() {
    const identity = { cwd: this.#directory, env: serverEnvironment() }
    if (!isRoot) return identity
    // A directory that an ordinary user made stays that user's when root starts the service once.
    const { uid, gid } = statSync(this.#directory)
    return { ...identity, uid, gid }
  }

  #ownPath(): string {
    return isRoot ? pathThatNeedsNoParents(this.#directory) : this.#directory
  }

  #lastLogLine(): string | undefined {
    try {
      const log = readFileSync(join(this.#directory, '..', 'postgres.log'), 'utf8')
      return log.trim().split('\n').at(-1) || undefined
    } catch {
      return undefined
    }
  }
}
