/**
 * Resolves the host names of endpoints. Never by getaddrinfo, as dns.lookup does: it occupies one of four threads that the whole
 * process shares until the name server answers. c-ares uses no thread. Decision 45.
 *
 * An account resolves a name once at a time, within LOOKUP_MAX_MS, for any behaviour of its name server. Successes and failures are cached.
 */
import { Resolver } from 'node:dns/promises'
import { isIP } from 'node:net'
import { LRUCache } from 'lru-cache'
import { type Address, HostsFile, type SystemNames, searchedNames } from './system-names.ts'

/** Less than the 10 s of a request, which still has to connect. */
const LOOKUP_MAX_MS = 5_000
/** c-ares tries again after 1 s, then 2 s, within LOOKUP_MAX_MS. */
const TRY_MS = 1_000
const TRIES = 3
/** After one family has answered: a name server that ignores the other one must not delay the connection. */
const OTHER_FAMILY_MS = 200
const NAMES_MAX = 10_000
/** A name server may ask for less or more. Less would be a query per request, more would keep a receiver that moved from its events. */
const CACHED_MIN_MS = 5_000
const CACHED_MAX_MS = 300_000
const FAILURE_CACHED_MS = 5_000
/** Lookups of this process at a time, each with two queries. An account may have as many as are free for all others. */
const LOOKUPS_MAX = 64

export class UnresolvedName extends Error {
  override readonly name = 'UnresolvedName'
}

class NoPlace extends UnresolvedName {}

interface Waiting {
  accountId: bigint
  start: () => void
}

export class HostResolver {
  readonly #servers: string[] | null
  readonly #system: SystemNames
  readonly #cache = new LRUCache<string, Address[] | UnresolvedName>({ max: NAMES_MAX })
  readonly #running = new Map<string, Promise<Address[]>>()
  readonly #runningOf = new Map<bigint, number>()
  #waiting: Waiting[] = []
  #started = 0

  /** @param servers name servers as `address:port`; null: the system's */
  constructor(servers: string[] | null = null, system: SystemNames = new HostsFile()) {
    this.#servers = servers
    this.#system = system
  }

  /**
   * The addresses of a name, at least one. Rejects with UnresolvedName, also because the name server does not answer.
   * @param isPrivate uses the search domains of the system
   */
  async resolve(name: string, accountId: bigint, isPrivate: boolean): Promise<Address[]> {
    const family = isIP(name)
    if (family !== 0) return [{ address: name, family: family as 4 | 6 }]
    const key = `${isPrivate} ${name.toLowerCase()}`
    const cached = this.#cache.get(key)
    if (cached instanceof UnresolvedName) throw cached
    if (cached !== undefined) return cached
    // By account: an account's names wait for its own lookups, and nobody else's do.
    const place = `${accountId} ${key}`
    const running = this.#running.get(place) ?? this.#resolveNow(place, key, name, accountId, isPrivate)
    this.#running.set(place, running)
    return running
  }

  async #resolveNow(
    place: string,
    key: string,
    name: string,
    accountId: bigint,
    isPrivate: boolean,
  ): Promise<Address[]> {
    try {
      await this.#takePlace(accountId)
      try {
        // Another account may have resolved it meanwhile.
        const cached = this.#cache.get(key)
        if (cached instanceof UnresolvedName) throw cached
        if (cached !== undefined) return cached
        const { addresses, ttlMs } = await this.#query(name, isPrivate)
        this.#cache.set(key, addresses, { ttl: Math.min(CACHED_MAX_MS, Math.max(CACHED_MIN_MS, ttlMs)) })
        return addresses
      } finally {
        this.#leavePlace(accountId)
      }
    } catch (error) {
      const failure =
        error instanceof UnresolvedName ? error : new UnresolvedName(`${name} cannot be resolved`)
      // That the account has no place says nothing of the name.
      if (!(failure instanceof NoPlace)) this.#cache.set(key, failure, { ttl: FAILURE_CACHED_MS })
      throw failure
    } finally {
      this.#running.delete(place)
    }
  }

  async #query(name: string, isPrivate: boolean): Promise<Found> {
    const { hosts, searchDomains, dotsMin } = await this.#system.read()
    const listed = hosts.get(name.toLowerCase().replace(/\.$/, ''))
    if (listed !== undefined) return { addresses: listed, ttlMs: 0 }
    // Of its own, so that cancel() ends these queries alone.
    const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES })
    if (this.#servers !== null) resolver.setServers(this.#servers)
    let isLate = false
    const timer = setTimeout(() => {
      isLate = true
      resolver.cancel()
    }, LOOKUP_MAX_MS)
    try {
      const names = isPrivate ? searchedNames(name, searchDomains, dotsMin) : [name]
      for (const candidate of names) {
        const found = await queryBothFamilies(resolver, candidate)
        if (found !== null) return found
        if (isLate) break
      }
    } finally {
      clearTimeout(timer)
      resolver.cancel()
    }
    throw new UnresolvedName(
      isLate
        ? `the name servers of ${name} do not answer`
        : `${name} has no address, or its name servers fail`,
    )
  }

  /** Waits for one of LOOKUPS_MAX places, for as long as a lookup may take. */
  #takePlace(accountId: bigint): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiting = {
        accountId,
        start: () => {
          clearTimeout(timer)
          resolve()
        },
      }
      const timer = setTimeout(() => {
        this.#waiting = this.#waiting.filter((one) => one !== waiting)
        reject(new NoPlace('too many names are being resolved'))
      }, LOOKUP_MAX_MS)
      this.#waiting.push(waiting)
      this.#startWaiting()
    })
  }

  #leavePlace(accountId: bigint): void {
    this.#count(accountId, -1)
    this.#startWaiting()
  }

  /** The account with the fewest lookups goes first. */
  #startWaiting(): void {
    for (;;) {
      const free = LOOKUPS_MAX - this.#started
      const of = ({ accountId }: Waiting) => this.#runningOf.get(accountId) ?? 0
      const [next] = this.#waiting.filter((waiting) => of(waiting) < free).sort((a, b) => of(a) - of(b))
      if (next === undefined) return
      this.#waiting.splice(this.#waiting.indexOf(next), 1)
      this.#count(next.accountId, 1)
      next.start()
    }
  }

  #count(accountId: bigint, change: 1 | -1): void {
    this.#started += change
    const running = (this.#runningOf.get(accountId) ?? 0) + change
    if (running === 0) this.#runningOf.delete(accountId)
    else this.#runningOf.set(accountId, running)
  }
}

interface Found {
  addresses: Address[]
  ttlMs: number
}

/** Null: the name has no address in either family, or no answer came. */
async function queryBothFamilies(resolver: Resolver, name: string): Promise<Found | null> {
  const query = async (family: 4 | 6) => {
    const resolve = family === 4 ? resolver.resolve4.bind(resolver) : resolver.resolve6.bind(resolver)
    const records = await resolve(name, { ttl: true }).catch(() => [])
    return records.filter(({ address }) => isIP(address) === family).map((record) => ({ ...record, family }))
  }
  const queries = [query(4), query(6)]
  const first = await Promise.race(queries)
  const records = await Promise.race([
    Promise.all(queries).then((both) => both.flat()),
    // Without an address, the other family is waited for.
    ...(first.length > 0
      ? [new Promise<typeof first>((resolve) => setTimeout(resolve, OTHER_FAMILY_MS, first))]
      : []),
  ])
  if (records.length === 0) return null
  return {
    addresses: records.map(({ address, family }) => ({ address, family })),
    ttlMs: Math.min(...records.map(({ ttl }) => ttl)) * 1000,
  }
}
