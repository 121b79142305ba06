/**
 * The embedded PostgreSQL server, which the service runs when DATABASE_URL is unset. Its data is in DATA_DIR/postgres. It
 * listens on a unix socket there and on no TCP port, and syncs every commit to disk.
 *
 * The service that owns the server holds an advisory lock on it, which ends with the service's connection. If the lock is
 * free, the service was killed (kill -9), and the next service adopts the server. If it is held, the owner is running.
 */
import type { ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { FatalError } from '../../errors.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import { EMBEDDED_DATABASE, isRoot, makeCluster, SOCKET, SUPERUSER, shortPathTo } from './cluster.ts'
import { findServer, isServerOf, sendSignal } from './lock-file.ts'
import { lastLogLine, SETTINGS, startPostmaster } from './postmaster.ts'

/** Advisory lock keys, arbitrary but fixed. The owning service holds the first, and every user shares the second. */
const SERVICE_LOCK = 7_301_001
const USER_LOCK = 7_301_003

/** After a kill -9, the dead server's lock file and shared memory can remain for 1 to 2 s. */
const START_TIMEOUT_MS = 30_000
const RETRY_MS = 100
/** A fast shutdown ends every session and writes a checkpoint, normally in less than 1 s. */
const STOP_TIMEOUT_MS = 7_000
/** How often the owner looks for the files without which new sessions fail: 2 calls of `stat` cost some microseconds. */
const FILE_CHECK_INTERVAL_MS = 1_000
/** A starting server has a lock file before it has a socket, normally for some milliseconds. */
const SOCKET_GRACE_MS = 5_000
/** How long stop() waits for a restart in progress, so that it can stop the new server. */
const RESTART_WAIT_MAX_MS = 1_000

/** Connection options for pg. */
export interface Connection {
  host: string
  port: number
  user: string
  database: string
}

/** The same as a postgres:// address, as DATABASE_URL takes it. */
export function connectionUrl({ host, port, user, database }: Connection): string {
  return `postgres://${user}@/${database}?host=${encodeURIComponent(host)}&port=${port}`
}

export class EmbeddedServer {
  readonly #directory: string
  readonly #dataDir: string
  readonly #socketDirectory: string
  readonly #settings: typeof SETTINGS
  #binaries: Binaries
  /** the connection that holds the advisory locks; null before use and while the server is down */
  #client: pg.Client | null = null
  #child: ChildProcess | null = null
  #stopped = false
  #isOwner = false
  /** settles when a crashed server is owned again */
  #restarting: Promise<void> = Promise.resolve()

  /**
   * Creates DATA_DIR/postgres with initdb on first use. Throws a FatalError if it cannot.
   * @param settings WEB_CONCURRENCY raises max_connections. Tests switch fsync off, because their data need not survive a power failure.
   */
  constructor(dataDir: string, settings = SETTINGS) {
    this.#dataDir = dataDir
    this.#settings = settings
    this.#binaries = findBinaries(dataDir, isRoot)
    this.#directory = makeCluster(dataDir, this.#binaries)
    this.#socketDirectory = shortPathTo(this.#directory)
  }

  get connection(): Connection {
    return { host: this.#socketDirectory, port: 5432, user: SUPERUSER, database: EMBEDDED_DATABASE }
  }

  /**
   * For a service: starts or adopts the server, takes its lock, and restarts the server after a crash. Throws a
   * FatalError if another service owns the directory.
   */
  async own(onLost: (error: Error) => void): Promise<void> {
    const client = await this.#connectOrStart()
    const { rows } = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [
      SERVICE_LOCK,
    ])
    if (rows[0]?.locked !== true) throw await refuseOwned(client)
    this.#client = client
    this.#isOwner = true
    const check = setInterval(() => this.#replaceDeletedFiles(), FILE_CHECK_INTERVAL_MS).unref()
    client.once('end', () => {
      clearInterval(check)
      this.#client = null
      if (this.#stopped) return
      onLost(new Error('the embedded PostgreSQL stopped'))
      this.#restarting = this.#restart(onLost)
    })
  }

  /** For a command: starts the server unless it runs, and keeps other commands from stopping it. */
  async use(): Promise<void> {
    await this.#client?.end().catch(() => undefined)
    this.#client = await this.#connectOrStart()
  }

  /** For a finished command: stops the server unless a service or another command uses it. */
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
      // The server has stopped already, by itself or by its service.
    }
    // From now on only its other users may stop the server.
    this.#stopped = true
  }

  /** Shuts the server down cleanly, unless another process owns it by now. */
  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.race([this.#restarting, sleep(RESTART_WAIT_MAX_MS, undefined, { ref: false })])
    // A server that this process has just started may have no lock file yet.
    const pid = findServer(this.#directory) ?? this.#child?.pid ?? null
    const isOurs = this.#client !== null || this.#child !== null
    // The locks stay held until the server is signalled, so that no other service adopts it in between.
    if (isOurs && pid !== null) await this.#shutDown(pid)
    await this.#client?.end().catch(() => undefined)
  }

  async #shutDown(pid: number): Promise<void> {
    // The server removes its lock file last. The process can remain a zombie if pid 1 does not reap it.
    const isRunning = () => findServer(this.#directory) === pid || this.#child?.pid === pid
    for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
      if (!isRunning()) return
      sendSignal(pid, signal)
      const deadline = Date.now() + STOP_TIMEOUT_MS
      while (Date.now() < deadline && isRunning()) await sleep(10)
    }
  }

  /** For a process that ends without stop(): signals the server that it owns or started to shut down. */
  abandon(): void {
    if (this.#stopped || (!this.#isOwner && this.#child === null)) return
    const pid = findServer(this.#directory) ?? this.#child?.pid
    if (pid !== undefined) sendSignal(pid, 'SIGINT')
  }

  async #restart(onLost: (error: Error) => void): Promise<void> {
    while (!this.#stopped) {
      try {
        return await this.own(onLost)
      } catch (error) {
        onLost(error as Error)
        await sleep(1000)
      }
    }
  }

  #replaceDeletedFiles(): void {
    this.#replaceWithoutSocket()
    if (existsSync(this.#binaries.library)) return
    try {
      this.#binaries = findBinaries(this.#dataDir, isRoot)
    } catch {
      // The package itself is missing, because npm is replacing it, or the disk is full. The next check tries again.
    }
  }

  /** Shuts down a server whose socket somebody has deleted. PostgreSQL creates a socket only when it starts. */
  #replaceWithoutSocket(): void {
    const pid = existsSync(join(this.#directory, SOCKET)) ? null : findServer(this.#directory)
    if (pid !== null) sendSignal(pid, 'SIGINT')
  }

  /** Connects, and starts the server if it does not run. Retries until START_TIMEOUT_MS. */
  async #connectOrStart(): Promise<pg.Client> {
    const startedAt = Date.now()
    for (;;) {
      try {
        return await this.#connect()
      } catch (error) {
        if (this.#stopped || Date.now() > startedAt + START_TIMEOUT_MS) {
          const reason = lastLogLine(this.#directory) ?? (error as Error).message
          throw new FatalError(`the embedded PostgreSQL in ${this.#directory} did not start: ${reason}`)
        }
        // Any other error comes from a running server that is starting, stopping or busy.
        const isDown = ['ENOENT', 'ECONNREFUSED'].includes((error as { code?: string }).code ?? '')
        const orphan = Date.now() > startedAt + SOCKET_GRACE_MS ? findServer(this.#directory) : null
        if (orphan !== null && isServerOf(this.#directory, orphan)) this.#replaceWithoutSocket()
        if (isDown && this.#child === null) this.#start()
        await sleep(RETRY_MS)
      }
    }
  }

  /** Opens a session with the shared lock. While it lasts, no command stops the server. */
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

  #start(): void {
    // The copy of an earlier start may have been deleted.
    this.#binaries = findBinaries(this.#dataDir, isRoot)
    const child = startPostmaster(this.#binaries, this.#directory, this.#settings)
    const clear = () => {
      this.#child = null
    }
    child.once('error', clear)
    child.once('exit', clear)
    this.#child = child
  }
}

/** Ends the connection. Returns an error that names the service that owns the server. */
async function refuseOwned(client: pg.Client): Promise<FatalError> {
  const { rows } = await client.query<{ name: string }>(
    `select application_name as name from pg_locks join pg_stat_activity using (pid)
      where locktype = 'advisory' and objid = $1 and granted`,
    [SERVICE_LOCK],
  )
  await client.end()
  return new FatalError(
    `DATA_DIR is in use by another oa-audience service (${rows[0]?.name ?? 'unknown process'}): ` +
      'stop that service, or set DATA_DIR to another directory',
  )
}
