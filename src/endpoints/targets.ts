import { LRUCache } from 'lru-cache'
import { int8Array } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { lookupWith, RefusedUrl, readEndpointUrl } from './address.ts'
import { type EndpointRow, loadEndpoints } from './backlog.ts'
import type { Target } from './post.ts'
import type { HostResolver, Share } from './resolver.ts'

/** Endpoints, and URLs, in the cache. */
const TARGETS_MAX = 10_000
/** A connection may be opened to an outdated URL, but the endpoint is read again before anything is sent. */
const ENDPOINT_MAX_AGE_MS = 1_000

export interface Endpoint {
  row: EndpointRow
  /** RefusedUrl: nothing is sent. */
  target: Target | RefusedUrl
}

export class Targets {
  readonly #isOwnUrl: (url: URL) => boolean
  readonly #endpoints = new LRUCache<bigint, Endpoint>({ max: TARGETS_MAX, ttl: ENDPOINT_MAX_AGE_MS })
  readonly #resolver: HostResolver
  /** Cache of parsed URLs, because parsing takes 10 µs. The key also has the account and whether the URL may be private. */
  readonly #urls = new LRUCache<string, Target | RefusedUrl>({ max: TARGETS_MAX })
  readonly #batches: Batcher<bigint, Endpoint>

  /** @param isOwnUrl whether a URL is this service's own, so that sending there would be a loop */
  constructor(connection: PinnedConnection, isOwnUrl: (url: URL) => boolean, resolver: HostResolver) {
    this.#isOwnUrl = isOwnUrl
    this.#resolver = resolver
    this.#batches = new Batcher(async (ids) => {
      const values = [int8Array([...new Set(ids)])]
      const [rows] = await connection.pipelineIdempotent([{ statement: loadEndpoints, values }])
      const byId = new Map((rows as EndpointRow[]).map((row) => [row.id, row]))
      return ids.map((id) => {
        const row = byId.get(id)
        return row && { row, target: this.#targetOf(row) }
      })
    })
  }

  /** Returns undefined if the endpoint no longer exists. */
  async find(id: bigint): Promise<Endpoint | undefined> {
    const cached = this.#endpoints.get(id)
    if (cached !== undefined) return cached
    const endpoint = await this.#batches.load(id)
    if (endpoint !== undefined) this.#endpoints.set(id, endpoint)
    return endpoint
  }

  /** Call it when the endpoint has changed. */
  forget(id: bigint): void {
    this.#endpoints.delete(id)
  }

  #targetOf(row: EndpointRow): Target | RefusedUrl {
    if (!row.can_sign) {
      return new RefusedUrl(`there is no ${row.format === 'line' ? 'channel secret' : 'secret'} to sign with`)
    }
    const key = `${row.channel_oa_id} ${row.allow_private_network} ${row.url}`
    const target = this.#urls.get(key) ?? readTarget(row.channel_oa_id, row, this.#isOwnUrl, this.#resolver)
    this.#urls.set(key, target)
    return target
  }
}

/** Returns RefusedUrl if nothing may be sent. A host name is checked when it is resolved. */
export function readTarget(
  share: Share,
  {
    url: text,
    allow_private_network: allowPrivateNetwork,
  }: Pick<EndpointRow, 'url' | 'allow_private_network'>,
  isOwnUrl: (url: URL) => boolean,
  resolver: HostResolver,
): Target | RefusedUrl {
  try {
    const url = readEndpointUrl(text, allowPrivateNetwork)
    if (isOwnUrl(url)) return new RefusedUrl("the URL is this service's own: a loop")
    const lookup = lookupWith(resolver, { share, allowPrivateNetwork })
    return { url, allowPrivateNetwork, lookup }
  } catch (error) {
    if (error instanceof RefusedUrl) return error
    throw error
  }
}

interface Waiting<Key, Value> {
  key: Key
  resolve: (value: Value | undefined) => void
  reject: (error: unknown) => void
}

/** Joins reads into batches. Reads that begin in one turn of the event loop, or during another batch, share a round trip. */
export class Batcher<Key, Value> {
  readonly #read: (keys: Key[]) => Promise<Array<Value | undefined>>
  #waiting: Array<Waiting<Key, Value>> = []
  #isReading = false

  /** @param read returns one value per key, in order */
  constructor(read: (keys: Key[]) => Promise<Array<Value | undefined>>) {
    this.#read = read
  }

  load(key: Key): Promise<Value | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, resolve, reject })
      if (!this.#isReading) {
        this.#isReading = true
        setImmediate(() => void this.#readAll())
      }
    })
  }

  async #readAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting
      this.#waiting = []
      try {
        const values = await this.#read(batch.map(({ key }) => key))
        for (const [index, { resolve }] of batch.entries()) resolve(values[index])
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#isReading = false
  }
}
