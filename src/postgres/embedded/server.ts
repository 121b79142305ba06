/**
 * The embedded PostgreSQL server, which the service runs when DATABASE_URL is unset. It listens on a unix socket in DATA_DIR/postgres.
 *
 * 1. A service starts the server and holds SERVICE_LOCK on it, an advisory lock that ends with the service's connection.
 * 2. If SERVICE_LOCK is held, another service refuses to start. If it is free, the server's service was killed (kill -9), and the
 *    next service stops the server and starts its own.
 * 3. A command uses the running server, or starts one. It shares USER_LOCK, and the last user that ends stops the server.
 * 4. If the server ends while its service runs, the service starts it again.
 */
import type { ChildProcess } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { FatalError } from '../../errors.ts'
import { SERVICE_LOCK, USER_LOCK } from '../locks.ts'
import {
  type Binaries,
  EMBEDDED_DATABASE,
  explainSpawn,
  findBinaries,
  makeCluster,
  SUPERUSER,
  socketDirectory,
} from './cluster.ts'
import { findServer, lastLogLine, SETTINGS, startPostmaster } from './postmaster.ts'

/** Long enough for a server that recovers from a crash, or that another process stops. */
const START_TIMEOUT_MS = 30_000
/** A shutdown normally takes less than 1 s. This process does not wait for a slower one. */
const STOP_TIMEOUT_MS = 7_000
const POLL_MS = 20
const RESTART_DELAY_MS = 1_000

export interface Connection {
  host: string
  port: number
  user: string
  database: string
}

export function connectionUrl({ host, port, user, database }: Connection): string {
  return `postgres://${user}@/${database}?host=${encodeURIComponent(host)}&port=${port}`
}

export class EmbeddedServer {
  readonly connection: Connection
  readonly #directory: string
  readonly #settings: typeof SETTINGS
  readonly #binaries: Binaries
  /** the connection that holds the advisory locks; null before use and while the server is down */
  #client: pg.Client | null = null
  /** null if another process started the server */
  #child: ChildProcess | null = null
  #spawnError: FatalError | null = null
  #stopped = false

  /**
   * Creates DATA_DIR/postgres on first use.
   * @param settings WEB_CONCURRENCY raises max_connections. Tests switch fsync off.
   */
  constructor(dataDir: string, settings = SETTINGS) {
    this.#settings = settings
    this.#binaries = findBinaries()
    this.#directory = makeCluster(dataDir, this.#binaries)
    const host = socketDirectory(dataDir)
    this.connection = { host, port: 5432, user: SUPERUSER, database: EMBEDDED_DATABASE }
  }

  /** For a service: starts the server, and restarts it after a crash. Returns false if a command has started it. */
  async own(onLost: (error: Error) => void): Promise<boolean> {
    let client = await this.#connectAsService()
    // The server of a killed service may have other settings and binaries. A server that commands use is kept.
    if (this.#child === null && (await tryLock(client, USER_LOCK))) {
      await this.#shutDown()
      client = await this.#connectAsService()
    }
    this.#client = client
    client.once('end', () => {
      this.#client = null
      if (this.#stopped) return
      onLost(new Error('the embedded PostgreSQL stopped'))
      void this.#restart(onLost)
    })
    return this.#child !== null
  }

  /** Commands call it. Starts the server unless it runs, and prevents other commands from stopping it. */
  async use(): Promise<void> {
    this.#client = await this.#connectOrStart()
  }

  /** A finished command calls it. Stops the server unless a service or another command uses it. */
  async release(): Promise<void> {
    const client = this.#client
    if (client === null) return
    try {
      await client.query('select pg_advisory_unlock_shared($1)', [USER_LOCK])
      if (await tryLock(client, USER_LOCK)) await this.stop()
    } catch {
      // The server has already stopped.
    }
    // From now on, only other users of the server may stop it.
    this.#stopped = true
    await client.end().catch(() => undefined)
  }

  /** Shuts the server down cleanly, unless another process owns it by now. */
  async stop(): Promise<void> {
    this.#stopped = true
    // The locks are held until the server is signalled, so that no other service takes it over in between.
    if (this.#client !== null || this.#child !== null) await this.#shutDown()
    await this.#client?.end().catch(() => undefined)
  }

  /** A server that has just started may have no lock file yet. */
  #pid(): number | null {
    return findServer(this.#directory) ?? this.#child?.pid ?? null
  }

  /** Ends every session and writes a checkpoint. The server removes its lock file last. */
  async #shutDown(): Promise<void> {
    const pid = this.#pid()
    if (pid === null) return
    try {
      process.kill(pid, 'SIGINT')
    } catch {}
    const deadline = Date.now() + STOP_TIMEOUT_MS
    while (this.#pid() === pid && Date.now() < deadline) await sleep(POLL_MS)
  }

  async #restart(onLost: (error: Error) => void): Promise<void> {
    while (!this.#stopped) {
      try {
        await this.own(onLost)
        return
      } catch (error) {
        onLost(error as Error)
        await sleep(RESTART_DELAY_MS)
      }
    }
  }

  async #connectAsService(): Promise<pg.Client> {
    const client = await this.#connectOrStart()
    if (await tryLock(client, SERVICE_LOCK)) return client
    const { rows } = await client.query<{ name: string }>(selectOwner, [SERVICE_LOCK])
    await client.end()
    throw new FatalError(
      `DATA_DIR is in use by another oa-audience service (${rows[0]?.name ?? 'unknown process'}): ` +
        'stop that service, or set DATA_DIR to another directory',
    )
  }

  async #connectOrStart(): Promise<pg.Client> {
    const deadline = Date.now() + START_TIMEOUT_MS
    for (;;) {
      try {
        return await this.#connect()
      } catch (error) {
        if (this.#spawnError !== null) throw this.#spawnError
        // Any other error comes from a running server that is starting, stopping or busy.
        const isDown = ['ENOENT', 'ECONNREFUSED'].includes((error as { code?: string }).code ?? '')
        if (this.#stopped || Date.now() > deadline) {
          const reason = lastLogLine(this.#directory) ?? (error as Error).message
          throw new FatalError(`the embedded PostgreSQL in ${this.#directory} did not start: ${reason}`)
        }
        if (isDown && this.#child === null) this.#start()
        await sleep(POLL_MS)
      }
    }
  }

  /** While the session with the shared lock lasts, no command stops the server. */
  async #connect(): Promise<pg.Client> {
    const client = new pg.Client({
      ...this.connection,
      application_name: `oa-audience, process ${process.pid}`,
      connectionTimeoutMillis: 5000,
    })
    client.on('error', () => undefined)
    await client.connect()
    await client.query('select pg_advisory_lock_shared($1)', [USER_LOCK])
    return client
  }

  #start(): void {
    const child = startPostmaster(this.#binaries, this.#directory, this.#settings)
    // This also runs if the process ends without stop().
    const shutDown = () => this.#stopped || child.kill('SIGINT')
    process.once('exit', shutDown)
    const clear = () => {
      this.#child = null
      process.off('exit', shutDown)
    }
    child.once('exit', clear)
    child.once('error', (error) => {
      clear()
      this.#spawnError = explainSpawn(error)
    })
    this.#child = child
  }
}

const selectOwner = `select application_name as name from pg_locks join pg_stat_activity using (pid)
  where locktype = 'advisory' and objid = $1 and granted`

async function tryLock(client: pg.Client, key: number): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [key])
  return rows[0]?.locked === true
}
