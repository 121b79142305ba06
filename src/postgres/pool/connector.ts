/** Opens connections: to the one server of DATABASE_URL, or to the primary among several. */
import pg from 'pg'
import { parseDatabaseUrl } from '../../config/database-url.ts'
import type { Connection } from '../embedded/server.ts'
import { DatabaseUnavailable } from '../faults.ts'
import { Primary, PrimaryClient } from '../replication/primary.ts'
import { refuseUnreplicated } from '../replication/replication.ts'
import { unnamed } from '../statement.ts'
import { connectionSettings, type Purpose } from './connection-settings.ts'
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
  readonly #settings: pg.ClientConfig
  /** Null if there is one server, which is used without a check. */
  readonly #primary: Primary | null
  readonly #hosts: number

  constructor(target: string | Connection) {
    const common = {
      types,
      application_name: `oa-audience, process ${process.pid}`,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    }
    const address = typeof target === 'string' ? parseDatabaseUrl(target) : null
    this.#hosts = address?.servers.length ?? 1
    this.#primary = address?.mustWrite ? new Primary(address.servers, common) : null
    this.#settings = {
      ...common,
      ...(typeof target === 'string' ? { connectionString: address?.servers[0]?.url } : target),
    }
  }

  /** Whether `locate` must resolve before a connection can be opened. */
  get mustLocate(): boolean {
    return this.#primary?.isFound === false
  }

  get hasSeveralHosts(): boolean {
    return this.#hosts > 1
  }

  async locate(): Promise<void> {
    await this.#primary?.find()
  }

  /** For a pg.Pool, which passes these settings to the constructor of each new client. */
  poolConfig(): pg.PoolConfig {
    const primary = this.#primary
    if (primary === null) return this.#settings
    return {
      ...this.#settings,
      Client: PrimaryClient,
      primary,
      onConnect: (client: pg.ClientBase) => primary.require(client),
    } as unknown as pg.PoolConfig
  }

  /** Opens a connection outside of the pools, which the caller ends. Throws DatabaseUnavailable. */
  async open(purpose: Purpose): Promise<pg.Client> {
    await this.locate()
    const primary = this.#primary
    const client =
      primary === null ? new pg.Client(this.#settings) : new PrimaryClient({ ...this.#settings, primary })
    client.on('error', () => undefined)
    refuseUnreplicated(client)
    try {
      await client.connect()
      await primary?.require(client)
    } catch (error) {
      client.end().catch(() => undefined)
      throw new DatabaseUnavailable(error)
    }
    await send(client, unnamed(connectionSettings(purpose)))
    return client
  }

  close(): void {
    this.#primary?.close()
  }
}
