/**
 * Resolves the host names of endpoints with c-ares. dns.lookup would use getaddrinfo, which occupies one of the process's four
 * threads until the name server responds (decision 45). So /etc/hosts and search domains do not count.
 *
 * Concurrent lookups of a name by one account share one query, which ends within LOOKUP_MAX_MS. Results and failures are cached.
 */
import { Resolver } from 'node:dns/promises'
import { isIP } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'

/** Less than the 10 s of a request, which has to connect afterwards. */
const LOOKUP_MAX_MS = 5_000
/** c-ares retries after 1 s, then 2 s. */
const TRY_MS = 1_000
const TRIES = 3
/** Wait for the second address family after the first one has a result. Some name servers ignore one of them. */
const OTHER_FAMILY_MS = 200
const NAMES_MAX = 10_000
/** Bounds of the TTL. A shorter one would cause a query per request. A longer one would delay deliveries to an endpoint that moved. */
const CACHED_MIN_MS = 5_000
const CACHED_MAX_MS = 300_000
const FAILURE_CACHED_MS = 5_000
/** Concurrent lookups of this process, each with two queries. An account may use as many as it leaves free. */
const LOOKUPS_MAX = 64

/** RFC 6761: localhost is never queried from a name server. */
const LOOPBACK: Address[] = [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
]

export interface Address {
  address: string
  family: 4 | 6
}

export class UnresolvedName extends Error {
  override readonly name = 'UnresolvedName'
}

/** Whose lookups are counted together: the id of an account, or a text for what belongs to no account. */
export type Share = bigint | string

interface Waiting {
  share: Share
  start: () => void
}

export class HostResolver {
  readonly #servers: string[] | null
  readonly #cache = new LRUCache<string, Address[] | UnresolvedName>({ max: NAMES_MAX })
  readonly #running = new Map<string, Promise<Address[]>>()
  readonly #runningOf = new Map<Share, number>()
  #waiting: Waiting[] = []
  #started = 0

  /** @param servers name servers as `address:port`; null: the system's */
  constructor(servers: string[] | null = null) {
    this.#servers = servers
  }

  /** Returns the addresses of a name, at least one. Rejects with UnresolvedName, also if the name server does not respond. */
  async resolve(text: string, share: Share): Promise<Address[]> {
    const family = isIP(text)
    if (family !== 0) return [{ address: text, family: family as 4 | 6 }]
    const name = text.toLowerCase()
    if (name === 'localhost') return LOOPBACK
    const cached = this.#cached(name)
    if (cached !== undefined) return cached
    // Per account, so that an account waits only for its own lookups.
    const place = `${share} ${name}`
    const running =
      this.#running.get(place) ??
      this.#resolveNow(name, share).finally(() => {
        this.#running.delete(place)
      })
    this.#running.set(place, running)
    return running
  }

  async #resolveNow(name: string, share: Share): Promise<Address[]> {
    await this.#takePlace(share)
    try {
      // Another account may have resolved it in the meantime.
      const cached = this.#cached(name)
      if (cached !== undefined) return cached
      const { addresses, ttlMs } = await this.#query(name)
      this.#cache.set(name, addresses, { ttl: Math.min(CACHED_MAX_MS, Math.max(CACHED_MIN_MS, ttlMs)) })
      return addresses
    } catch (error) {
      const failure =
        error instanceof UnresolvedName ? error : new UnresolvedName(`${name} cannot be resolved`)
      this.#cache.set(name, failure, { ttl: FAILURE_CACHED_MS })
      throw failure
    } finally {
      this.#count(share, -1)
      this.#startWaiting()
    }
  }

  async #query(name: string): Promise<Found> {
    // A separate resolver, because cancel() ends all queries of a resolver.
    const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES })
    if (this.#servers !== null) resolver.setServers(this.#servers)
    let fault = `${name} has no address, or its name servers fail`
    const timer = setTimeout(() => {
      fault = `the name servers of ${name} do not respond`
      resolver.cancel()
    }, LOOKUP_MAX_MS)
    try {
      const found = await queryBothFamilies(resolver, name)
      if (found === null) throw new UnresolvedName(fault)
      return found
    } finally {
      clearTimeout(timer)
      resolver.cancel()
    }
  }

  /** Waits up to LOOKUP_MAX_MS for one of LOOKUPS_MAX places. */
  #takePlace(share: Share): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiting = {
        share,
        start: () => {
          clearTimeout(timer)
          resolve()
        },
      }
      const timer = setTimeout(() => {
        this.#waiting = this.#waiting.filter((one) => one !== waiting)
        reject(new UnresolvedName('too many names are being resolved'))
      }, LOOKUP_MAX_MS)
      this.#waiting.push(waiting)
      this.#startWaiting()
    })
  }

  #cached(key: string): Address[] | undefined {
    const cached = this.#cache.get(key)
    if (cached instanceof UnresolvedName) throw cached
    return cached
  }

  /** The account with the fewest lookups goes first. */
  #startWaiting(): void {
    for (;;) {
      const free = LOOKUPS_MAX - this.#started
      const of = ({ share }: Waiting) => this.#runningOf.get(share) ?? 0
      const [next] = this.#waiting.filter((waiting) => of(waiting) < free).sort((a, b) => of(a) - of(b))
      if (next === undefined) return
      this.#waiting.splice(this.#waiting.indexOf(next), 1)
      this.#count(next.share, 1)
      next.start()
    }
  }

  #count(share: Share, change: 1 | -1): void {
    this.#started += change
    const running = (this.#runningOf.get(share) ?? 0) + change
    if (running === 0) this.#runningOf.delete(share)
    else this.#runningOf.set(share, running)
  }
}

interface Found {
  addresses: Address[]
  ttlMs: number
}

/** Returns null if the name has no address in either family, or the name server did not respond. */
async function queryBothFamilies(resolver: Resolver, name: string): Promise<Found | null> {
  const query = async (family: 4 | 6) => {
    const resolve = family === 4 ? resolver.resolve4.bind(resolver) : resolver.resolve6.bind(resolver)
    const records = await resolve(name, { ttl: true }).catch(() => [])
    return records.filter(({ address }) => isIP(address) === family).map((record) => ({ ...record, family }))
  }
  const queries = [query(4), query(6)]
  const both = Promise.all(queries).then((found) => found.flat())
  const first = await Promise.race(queries)
  // If the first family has no address, only the other one can have one.
  const inTime =
    first.length === 0 ? await both : await Promise.race([both, sleep(OTHER_FAMILY_MS, null, { ref: false })])
  const records = inTime ?? first
  if (records.length === 0) return null
  return {
    addresses: records.map(({ address, family }) => ({ address, family })),
    // Perhaps only the family that is late is reachable. A DNS64 queries both, so its response takes longer.
    ttlMs: inTime === null ? 0 : Math.min(...records.map(({ ttl }) => ttl)) * 1000,
  }
}
