/** Asks one server again and again whether it is the primary. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { DatabaseServer } from '../database-url.ts'
import { statement } from './statement.ts'

/** A takeover is noticed within this and the time of one answer. Half a second is a tenth of the 5 s that it may take. */
const WATCH_INTERVAL_MS = 500
/** An answer takes a millisecond. A server that needs this long is stopped, or its packets are dropped. */
const ANSWER_TIMEOUT_MS = 2_000

/** What a server says of itself. Each promotion of a standby begins a timeline with a greater number. */
export interface Standing {
  canWrite: boolean
  /** 0 on a standby */
  timeline: number
}

/** A standby has no WAL position of its own, and asking for one would fail. */
const selectStanding = statement('standing')`
    select current_setting('transaction_read_only') = 'off' as can_write,
           case when not pg_is_in_recovery() then pg_walfile_name(pg_current_wal_lsn()) end as wal_file`

/** Throws what pg throws, within ANSWER_TIMEOUT_MS. */
export async function readStanding(client: pg.ClientBase): Promise<Standing> {
  const { rows } = await client.query<{ can_write: boolean; wal_file: string | null }>({
    ...selectStanding,
    query_timeout: ANSWER_TIMEOUT_MS,
  } as pg.QueryConfig)
  // The name of a WAL file begins with the timeline in 8 hexadecimal digits.
  const timeline = Number.parseInt(rows[0]?.wal_file?.slice(0, 8) ?? '0', 16)
  return { canWrite: rows[0]?.can_write === true && timeline > 0, timeline }
}

export class ServerWatch {
  readonly server: DatabaseServer
  readonly #settings: pg.ClientConfig
  readonly #stop = new AbortController()
  #client: pg.Client | null = null
  /** Why the server gave no answer; null if it did. */
  fault: unknown = null

  constructor(server: DatabaseServer, settings: pg.ClientConfig) {
    this.server = server
    this.#settings = { ...settings, connectionString: server.url }
  }

  /** @param report receives each answer, null if there was none */
  async run(report: (standing: Standing | null) => void): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      const standing = await this.#ask()
      if (signal.aborted) return
      report(standing)
      await sleep(WATCH_INTERVAL_MS, undefined, { signal, ref: false }).catch(() => undefined)
    }
  }

  stop(): void {
    this.#stop.abort()
    this.#disconnect()
  }

  /** Keeps its connection. A standby keeps its sessions when it is promoted, so a takeover costs no login. */
  async #ask(): Promise<Standing | null> {
    try {
      this.#client ??= await this.#connect()
      const standing = await readStanding(this.#client)
      this.fault = null
      return standing
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
