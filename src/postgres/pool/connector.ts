/** Opens connections: to the one server of DATABASE_URL, or to the primary among several, which it follows. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { type DatabaseServer, parseDatabaseUrl } from '../../config/database-url.ts'
import type { Connection } from '../embedded/server.ts'
import { DatabaseUnavailable } from '../faults.ts'
import { statement, unnamed } from '../statement.ts'
import { abandon, acceptPlainText, listenTo, SESSION_SETTINGS } from './connection-settings.ts'
import { send } from './pool.ts'

/** The platforms disconnect after 2 s. */
const CONNECT_TIMEOUT_MS = 2_000
/** Proxies and address translators drop a connection after minutes of silence. */
const KEEP_ALIVE_MS = 30_000

// int8 becomes bigint, because ids exceed 2^53. timestamptz stays text, because parsing it to a Date costs a list 40 % of its
// throughput.
const INT8_ARRAY = 1016
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    if (oid === pg.types.builtins.INT8) return (text: string) => BigInt(text)
    if (oid === INT8_ARRAY)
      return (text: string) => (pg.types.getTypeParser(INT8_ARRAY as number)(text) as string[]).map(BigInt)
    if (oid === pg.types.builtins.TIMESTAMPTZ) return (text: string) => text
    return pg.types.getTypeParser(oid, format)
  },
} as pg.CustomTypesConfig

export class Connector {
  readonly #settings: ServerClientConfig
  /** Null: the only server is used without a check. */
  readonly #primary: Primary | null
  readonly #hosts: number

  /** @param target a postgres:// address, one of its servers, or the embedded server */
  constructor(target: string | DatabaseServer | Connection) {
    const { servers, mustWrite } = typeof target === 'string' ? parseDatabaseUrl(target) : only(target)
    const [first] = servers as [DatabaseServer]
    const common = {
      types,
      application_name: `oa-audience, process ${process.pid}`,
      // pg-pool also limits the connection by it.
      connectionTimeoutMillis: first.settings.connectionTimeoutMillis ?? CONNECT_TIMEOUT_MS,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    }
    const primary = mustWrite ? new Primary(servers, common) : null
    this.#hosts = servers.length
    this.#primary = primary
    this.#settings = primary
      ? { ...common, choose: () => primary.server, track: (client, server) => primary.track(client, server) }
      : { ...common, choose: () => first }
  }

  get hasSeveralHosts(): boolean {
    return this.#hosts > 1
  }

  /** Must resolve before a connection is opened. Throws DatabaseUnavailable. */
  async locate(): Promise<void> {
    await this.#primary?.find()
  }

  poolConfig(): pg.PoolConfig {
    const primary = this.#primary
    return {
      ...this.#settings,
      Client: ServerClient,
      ...(primary && { onConnect: (client: pg.ClientBase) => primary.require(client) }),
    } as unknown as pg.PoolConfig
  }

  /** The caller ends the connection. Throws DatabaseUnavailable. */
  async openSession(): Promise<pg.Client> {
    await this.locate()
    const client = new ServerClient(this.#settings)
    listenTo(client)
    try {
      await client.connect()
      await this.#primary?.require(client)
    } catch (error) {
      client.end().catch(() => undefined)
      throw new DatabaseUnavailable(error)
    }
    await send(client, unnamed(SESSION_SETTINGS))
    return client
  }

  close(): void {
    this.#primary?.close()
  }
}

function only(target: DatabaseServer | Connection): { servers: DatabaseServer[]; mustWrite: boolean } {
  const ofEmbedded = (settings: Connection) => ({
    ...{ name: settings.host, settings: { ...settings, ssl: false }, isTlsOptional: false },
  })
  return { servers: ['settings' in target ? target : ofEmbedded(target)], mustWrite: false }
}

interface ServerClientConfig extends pg.ClientConfig {
  /** Several servers: returns the one to connect to. Throws DatabaseUnavailable. */
  choose: () => DatabaseServer
  track?: (client: pg.Client, server: DatabaseServer) => void
}

class ServerClient extends pg.Client {
  constructor({ choose, track, ...settings }: ServerClientConfig) {
    const server = choose()
    super({ ...settings, ...server.settings })
    if (server.isTlsOptional && server.settings.ssl) acceptPlainText(this)
    track?.(this, server)
  }
}

/** A takeover is noticed within this and one response time. It may take 5 s, of which this is a tenth. */
const WATCH_INTERVAL_MS = 500
/** A response takes a millisecond. */
const RESPONSE_TIMEOUT_MS = 2_000

/** Returns no row where writes are refused. The name of a WAL file begins with the timeline, which each promotion increases. */
const selectTimeline = {
  ...statement('writable-timeline')`
    select left(pg_walfile_name(pg_current_wal_lsn()), 8) as timeline
     where current_setting('transaction_read_only') = 'off'`,
  query_timeout: RESPONSE_TIMEOUT_MS,
}

async function readTimeline(client: pg.ClientBase | pg.Pool): Promise<string | null> {
  const { rows } = await client.query<{ timeline: string }>(selectTimeline)
  return rows[0]?.timeline ?? null
}

interface WatchedServer extends DatabaseServer {
  /** One connection. A standby keeps its sessions when it is promoted, so a takeover costs no login. */
  pool: pg.Pool
  /** The last response. Null if there was none, or if the server refuses writes. */
  timeline: string | null
  fault: unknown
}

/**
 * The server that accepts writes on the latest timeline that any server has reported. A former primary that comes back stays on its
 * earlier timeline, so it is never used again, even if it still accepts writes.
 */
class Primary {
  readonly #servers: WatchedServer[]
  readonly #clients = new Map<pg.Client, DatabaseServer>()
  readonly #stop = new AbortController()
  #timeline = ''
  #current: WatchedServer | null = null
  #search: Promise<void> | null = null

  constructor(servers: DatabaseServer[], settings: pg.ClientConfig) {
    this.#servers = servers.map((server) => {
      const one = { ...settings, Client: ServerClient, choose: () => server, max: 1, idleTimeoutMillis: 0 }
      const pool = new pg.Pool(one as unknown as pg.PoolConfig)
      pool.on('error', () => undefined)
      return { ...server, pool, timeline: null, fault: null }
    })
  }

  /** Throws DatabaseUnavailable if none is found. Prefers a database error, such as a wrong password, to a server that is down. */
  get server(): WatchedServer {
    if (this.#current !== null) return this.#current
    const faults = this.#servers.flatMap(({ fault }) => fault ?? [])
    const fault = faults.find((one) => one instanceof pg.DatabaseError) ?? faults[0]
    throw new DatabaseUnavailable(fault ?? new Error('no server of DATABASE_URL accepts writes'))
  }

  async find(): Promise<void> {
    this.#search ??= this.#begin()
    await this.#search
    void this.server
  }

  /** A takeover ends the connection. */
  track(client: pg.Client, server: DatabaseServer): void {
    this.#clients.set(client, server)
    client.once('end', () => this.#clients.delete(client))
  }

  /** Throws unless the server of a new connection is the primary at this moment. */
  async require(client: pg.ClientBase): Promise<void> {
    const timeline = await readTimeline(client)
    if (timeline === null || timeline < this.#timeline) throw new Error('the server is not the primary')
  }

  close(): void {
    this.#stop.abort()
    for (const { pool } of this.#servers) pool.end().catch(() => undefined)
  }

  /** The first response may come from a former primary that still runs, so the choice waits for all servers. */
  async #begin(): Promise<void> {
    const responses = Promise.all(this.#servers.map((server) => this.#ask(server)))
    await Promise.race([responses, sleep(RESPONSE_TIMEOUT_MS, undefined, { ref: false })])
    this.#choose()
    for (const server of this.#servers) void this.#watch(server)
  }

  async #watch(server: WatchedServer): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      await sleep(WATCH_INTERVAL_MS, undefined, { signal, ref: false }).catch(() => undefined)
      await this.#ask(server)
      this.#choose()
    }
  }

  async #ask(server: WatchedServer): Promise<void> {
    try {
      server.timeline = await readTimeline(server.pool)
      server.fault = null
    } catch (error) {
      server.timeline = null
      server.fault = error
    }
    if (server.timeline !== null && server.timeline > this.#timeline) this.#timeline = server.timeline
  }

  /** A request that waits for a former primary would wait in vain: the server was stopped, or has lost its standbys. */
  #choose(): void {
    const primaries = this.#servers.filter(({ timeline }) => timeline === this.#timeline)
    const [next] = primaries
    if (next === undefined || (this.#current !== null && primaries.includes(this.#current))) return
    this.#current = next
    for (const [client, server] of this.#clients)
      if (server !== next) abandon(client, new Error(`${next.name} took over`))
  }
}
