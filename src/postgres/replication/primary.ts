/** Finds the primary among the servers of DATABASE_URL, and follows it when another server takes over. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { DatabaseServer } from '../../config/database-url.ts'
import { DatabaseUnavailable } from '../faults.ts'
import { abandon } from '../pool/pg-internals.ts'
import { statement } from '../statement.ts'

/** A takeover is noticed within this and one response time. It may take 5 s, of which this is a tenth. */
const WATCH_INTERVAL_MS = 500
/** A response takes a millisecond. A server that needs this long is stopped, or its packets are dropped. */
const RESPONSE_TIMEOUT_MS = 2_000
/** How long a caller waits for the first primary. */
const SEARCH_TIMEOUT_MS = 2_000
/**
 * The first response may come from a former primary that still runs. A running server responds within milliseconds, so the others
 * get this time to report a later timeline. Only the first search waits, and only if a server does not respond.
 */
const GRACE_MS = 300

/**
 * Returns no row where writes are refused, as on a standby. The name of a WAL file begins with the timeline in 8 hexadecimal digits.
 * Each promotion of a standby begins a greater one.
 */
const selectTimeline = statement('writable-timeline')`
    select left(pg_walfile_name(pg_current_wal_lsn()), 8) as timeline
     where current_setting('transaction_read_only') = 'off'`

/** Returns null if the server refuses writes. Throws pg's errors, within RESPONSE_TIMEOUT_MS. */
async function readTimeline(client: pg.ClientBase): Promise<string | null> {
  const query = { ...selectTimeline, query_timeout: RESPONSE_TIMEOUT_MS } as pg.QueryConfig
  const { rows } = await client.query<{ timeline: string }>(query)
  return rows[0]?.timeline ?? null
}

/**
 * The primary is the server that accepts writes on the latest timeline that any server has reported. A former primary that comes
 * back stays on its earlier timeline, so it is never used again, even if it still accepts writes.
 */
export class Primary {
  readonly #watches: ServerWatch[]
  /** The last result of each server. Null if it does not respond, or does not accept writes. */
  readonly #timelines = new Map<DatabaseServer, string | null>()
  readonly #clients = new Map<pg.Client, DatabaseServer>()
  #noteFound = (): void => undefined
  readonly #found = new Promise<void>((resolve) => {
    this.#noteFound = resolve
  })
  #timeline = ''
  #current: DatabaseServer | null = null
  #isStarted = false
  #isSettled = false

  constructor(servers: DatabaseServer[], settings: pg.ClientConfig) {
    this.#watches = servers.map((server) => new ServerWatch(server, settings))
  }

  get isFound(): boolean {
    return this.#current !== null
  }

  /** Throws DatabaseUnavailable until `find` has resolved. */
  get server(): DatabaseServer {
    if (this.#current === null) throw new DatabaseUnavailable(this.#fault())
    return this.#current
  }

  async find(): Promise<void> {
    if (this.#current !== null) return
    this.#start()
    await Promise.race([this.#found, sleep(SEARCH_TIMEOUT_MS, undefined, { ref: false })])
    if (this.#current === null) throw new DatabaseUnavailable(this.#fault())
  }

  /** Records the server of a client, so that a takeover ends the connection. */
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
    for (const watch of this.#watches) watch.stop()
  }

  #start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    const settle = () => {
      this.#isSettled = true
      this.#choose()
    }
    for (const watch of this.#watches) {
      void watch.run((timeline) => {
        this.#timelines.set(watch.server, timeline)
        if (timeline !== null && timeline > this.#timeline) this.#timeline = timeline
        if (this.#timelines.size === this.#watches.length) settle()
        else if (timeline !== null) setTimeout(settle, GRACE_MS).unref()
        if (this.#isSettled) this.#choose()
      })
    }
  }

  #choose(): void {
    const primaries = this.#watches
      .map(({ server }) => server)
      .filter((server) => this.#timelines.get(server) === this.#timeline)
    const [next] = primaries
    if (next === undefined || (this.#current !== null && primaries.includes(this.#current))) return
    this.#current = next
    this.#noteFound()
    this.#abandonOthers(next)
  }

  /** A request that waits for a former primary would wait in vain: the server was stopped, or has lost its standbys. */
  #abandonOthers(primary: DatabaseServer): void {
    for (const [client, server] of this.#clients) {
      if (server !== primary) abandon(client, new Error(`${primary.name} took over`))
    }
  }

  /** Prefers a database error, such as a wrong password, which is more specific than a server that is down. */
  #fault(): unknown {
    const faults = this.#watches.map(({ fault }) => fault).filter((fault) => fault !== null)
    return (
      faults.find((fault) => fault instanceof pg.DatabaseError) ??
      faults[0] ??
      new Error('no server of DATABASE_URL accepts writes')
    )
  }
}

/** Connects to the server that is the primary when the client is made. Call `find` first. */
export class PrimaryClient extends pg.Client {
  constructor({ primary, ...settings }: pg.ClientConfig & { primary: Primary }) {
    const { server } = primary
    super({ ...settings, connectionString: server.url })
    primary.track(this, server)
  }
}

class ServerWatch {
  readonly server: DatabaseServer
  readonly #settings: pg.ClientConfig
  readonly #stop = new AbortController()
  #client: pg.Client | null = null
  fault: unknown = null

  constructor(server: DatabaseServer, settings: pg.ClientConfig) {
    this.server = server
    this.#settings = { ...settings, connectionString: server.url }
  }

  async run(report: (timeline: string | null) => void): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      const timeline = await this.#ask()
      if (signal.aborted) return
      report(timeline)
      await sleep(WATCH_INTERVAL_MS, undefined, { signal, ref: false }).catch(() => undefined)
    }
  }

  stop(): void {
    this.#stop.abort()
    this.#disconnect()
  }

  /** Keeps its connection. A standby keeps its sessions when it is promoted, so a takeover costs no login. */
  async #ask(): Promise<string | null> {
    try {
      this.#client ??= await this.#connect()
      const timeline = await readTimeline(this.#client)
      this.fault = null
      return timeline
    } catch (error) {
      this.fault = error
      this.#disconnect()
      return null
    }
  }

  async #connect(): Promise<pg.Client> {
    const client = new pg.Client(this.#settings)
    client.on('error', () => this.#disconnect())
    await client.connect()
    return client
  }

  #disconnect(): void {
    this.#client?.end().catch(() => undefined)
    this.#client = null
  }
}
