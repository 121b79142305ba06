/** Finds the primary among the servers of DATABASE_URL, and follows it when another server takes over. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { DatabaseServer } from '../database-url.ts'
import { DatabaseUnavailable } from './faults.ts'
import { readStanding, ServerWatch, type Standing } from './server-watch.ts'

/** How long a caller waits for the first answers. */
const SEARCH_TIMEOUT_MS = 2_000
/**
 * The first answer may come from a former primary that is still running. A server that runs answers within milliseconds, so
 * the others get this time to name a later timeline. Only the first search waits, and only if a server does not answer.
 */
const GRACE_MS = 300

/**
 * The primary is the server that accepts writes on the latest timeline that any server has named. A former primary that comes
 * back stays on its earlier timeline, so it is never used again, even if it still accepts writes.
 */
export class Primary {
  readonly #watches: ServerWatch[]
  readonly #standings = new Map<DatabaseServer, Standing | null>()
  readonly #clients = new Map<pg.Client, DatabaseServer>()
  /** Searches that wait for a primary. */
  readonly #waiting = new Set<() => void>()
  #timeline = 0
  #current: DatabaseServer | null = null
  #isStarted = false
  /** Every server has answered or had its time. */
  #isSettled = false

  constructor(servers: DatabaseServer[], settings: pg.ClientConfig) {
    this.#watches = servers.map((server) => new ServerWatch(server, settings))
  }

  /** The server to connect to. Null until `find` has resolved. */
  get current(): DatabaseServer | null {
    return this.#current
  }

  /** Resolves when a primary has been found. Throws DatabaseUnavailable. */
  async find(): Promise<void> {
    if (this.#current !== null) return
    this.#start()
    let found = (): void => undefined
    const isFound = new Promise<boolean>((resolve) => {
      found = () => resolve(true)
      this.#waiting.add(found)
    })
    const late = sleep(SEARCH_TIMEOUT_MS, false, { ref: false })
    const hasPrimary = await Promise.race([isFound, late])
    this.#waiting.delete(found)
    if (!hasPrimary) throw new DatabaseUnavailable(this.#fault())
  }

  /** Remembers which server the client connects to, so that a takeover ends the connection. */
  track(client: pg.Client, server: DatabaseServer): void {
    this.#clients.set(client, server)
    client.once('end', () => this.#clients.delete(client))
  }

  /** For a connection that has just opened: throws unless its server is the primary at this moment. */
  async require(client: pg.ClientBase): Promise<void> {
    const { canWrite, timeline } = await readStanding(client)
    if (!canWrite || timeline < this.#timeline) throw new Error('the server is not the primary')
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
      void watch.run((standing) => {
        this.#standings.set(watch.server, standing)
        if (standing?.canWrite) this.#timeline = Math.max(this.#timeline, standing.timeline)
        if (this.#standings.size === this.#watches.length) settle()
        else if (standing?.canWrite) setTimeout(settle, GRACE_MS).unref()
        if (this.#isSettled) this.#choose()
      })
    }
  }

  /** Keeps the current server while it is a primary. */
  #choose(): void {
    const primaries = this.#watches
      .map(({ server }) => server)
      .filter((server) => {
        const standing = this.#standings.get(server)
        return standing?.canWrite && standing.timeline === this.#timeline
      })
    const [next] = primaries
    if (next === undefined || (this.#current !== null && primaries.includes(this.#current))) return
    this.#current = next
    for (const found of this.#waiting) found()
    this.#abandonOthers(next)
  }

  /** A request that waits for a server which was stopped, or has lost its standbys, would wait for nothing. */
  #abandonOthers(primary: DatabaseServer): void {
    for (const [client, server] of this.#clients) {
      if (server !== primary) abandon(client, new Error(`${primary.name} took over`))
    }
  }

  /** The database's own answer, such as a wrong password, says more than that a server is down. */
  #fault(): unknown {
    const faults = this.#watches.map(({ fault }) => fault).filter((fault) => fault !== null)
    return (
      faults.find((fault) => fault instanceof pg.DatabaseError) ??
      faults[0] ??
      new Error('no server of DATABASE_URL accepts writes')
    )
  }
}

/** Closes the connection without waiting for the server. Every query on it fails with the error. */
export function abandon(client: pg.Client, error?: Error): void {
  const { stream } = (client as unknown as { connection: { stream: { destroy(error?: Error): void } } })
    .connection
  stream.destroy(error)
}
