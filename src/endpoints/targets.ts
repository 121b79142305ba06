import { LRUCache } from 'lru-cache'
import { int8Array } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { lookupWith, RefusedUrl, readEndpointUrl } from './address.ts'
import { type EndpointRow, loadEndpoints } from './backlog.ts'
import { type EndpointResponse, type Message, notSent, post, type Target } from './post.ts'
import type { HostResolver, Share } from './resolver.ts'

const TARGETS_MAX = 10_000
/** A connection may be opened to an outdated URL, but the endpoint is read again before anything is sent. */
const ENDPOINT_MAX_AGE_MS = 1_000

export interface ReceiverChecks {
  /** whether a URL is this service's own, so that sending there would be a loop */
  isOwnUrl: (url: URL) => boolean
  resolver: HostResolver
}

interface Endpoint {
  row: EndpointRow
  /** RefusedUrl: nothing is sent. */
  target: Target | RefusedUrl
}

export class Targets {
  readonly #connection: PinnedConnection
  readonly #checks: ReceiverChecks
  readonly #endpoints = new LRUCache<bigint, Endpoint>({ max: TARGETS_MAX, ttl: ENDPOINT_MAX_AGE_MS })
  /** The endpoints that the next batch reads. Reads that begin in one turn of the event loop share a round trip. */
  #batch: { ids: Set<bigint>; rows: Promise<Map<bigint, EndpointRow>> } | null = null

  constructor(connection: PinnedConnection, checks: ReceiverChecks) {
    this.#connection = connection
    this.#checks = checks
  }

  /** Returns undefined if the endpoint no longer exists. */
  async find(id: bigint): Promise<Endpoint | undefined> {
    const cached = this.#endpoints.get(id)
    if (cached !== undefined) return cached
    this.#batch ??= this.#beginBatch()
    this.#batch.ids.add(id)
    const row = (await this.#batch.rows).get(id)
    if (row === undefined) return undefined
    const endpoint = { row, target: this.#targetOf(row) }
    this.#endpoints.set(id, endpoint)
    return endpoint
  }

  #beginBatch() {
    const ids = new Set<bigint>()
    const read = async () => {
      await new Promise((resolve) => setImmediate(resolve))
      this.#batch = null
      const values = [int8Array([...ids])]
      const [rows] = await this.#connection.pipelineIdempotent([{ statement: loadEndpoints, values }])
      return new Map((rows as EndpointRow[]).map((row) => [row.id, row]))
    }
    return { ids, rows: read() }
  }

  forget(id: bigint): void {
    this.#endpoints.delete(id)
  }

  #targetOf(row: EndpointRow): Target | RefusedUrl {
    if (!row.can_sign) {
      return new RefusedUrl(`there is no ${row.format === 'line' ? 'channel secret' : 'secret'} to sign with`)
    }
    return readTarget(row.channel_oa_id, row, this.#checks)
  }
}

/** Returns RefusedUrl if nothing may be sent. A host name is checked when it is resolved. */
function readTarget(
  share: Share,
  {
    url: text,
    allow_private_network: allowPrivateNetwork,
  }: Pick<EndpointRow, 'url' | 'allow_private_network'>,
  { isOwnUrl, resolver }: ReceiverChecks,
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

export async function sendNow(
  share: Share,
  row: Pick<EndpointRow, 'url' | 'allow_private_network'>,
  message: Message,
  { isOwnUrl, resolver, watch }: ReceiverChecks & Pick<Target, 'watch'>,
): Promise<EndpointResponse> {
  const target = readTarget(share, row, { isOwnUrl, resolver })
  if (target instanceof RefusedUrl) return notSent(target.message)
  const open = async () => ({ message, release: () => undefined, whenLost: () => undefined })
  return (await post({ ...target, ...(watch && { watch }) }, open)) ?? notSent('nothing was sent')
}
