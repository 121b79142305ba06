/** Counts the requests of each client address, in memory or in Redis. */
import { isIP } from 'node:net'
import { normalizeIP } from '@fastify/rate-limit'
import type { FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'

const KEYS_MAX = 10_000
/** An IPv6 address with brackets and a port fits. A proxy may send an address as long as a header. */
const ADDRESS_MAX_LENGTH = 64
/** A customer receives a /64 and can use any address in it. */
const IPV6_SUBNET_BITS = 64

/** State of an address's window after a request was counted. */
export interface Limit {
  remaining: number
  resetSeconds: number
  isExceeded: boolean
}

export interface Counter {
  count: (request: FastifyRequest) => Limit | Promise<Limit>
  giveBack: (request: FastifyRequest) => void
}

export function createClientKey(): (request: FastifyRequest) => string {
  // Normalising an IPv6 address takes 10 µs, a fifth of the time for a whole delivery.
  const keys = new LRUCache<string, string>({ max: KEYS_MAX })
  // A client that has disconnected has no address.
  return ({ ip = '' }) => {
    const cached = keys.get(ip)
    if (cached !== undefined) return cached
    const key = keyOfAddress(ip)
    if (ip.length <= ADDRESS_MAX_LENGTH) keys.set(ip, key)
    return key
  }
}

function keyOfAddress(received: string): string {
  // Some proxies append the port. If it stayed, every connection would have a separate limit.
  const address =
    /^\[([^\]]+)\](?::\d+)?$/.exec(received)?.[1] ?? /^([\d.]+):\d+$/.exec(received)?.[1] ?? received
  return isIP(address) === 0 ? 'unknown' : normalizeIP(address, IPV6_SUBNET_BITS)
}

/**
 * About 40 MiB. Beyond the limit, the least recently used window is dropped. A count takes 0.1 µs with 10,000 addresses, and
 * 0.6 to 1.9 µs with a million.
 */
const WINDOWS_MAX = 200_000

/**
 * A synchronous store. The memory store of @fastify/rate-limit returns promises, which cost about 5 % of intake (measured). Each
 * fixed window begins with the first request of its address.
 */
export class MemoryStore {
  readonly #windows = new LRUCache<string, { count: number; startedAtMs: number }>({ max: WINDOWS_MAX })
  readonly #windowMs: number

  constructor(windowMs: number) {
    this.#windowMs = windowMs
  }

  /** Returns the requests in the window, including this one, and the time until it ends. */
  count(key: string): { requests: number; leftMs: number } {
    // The clock is monotonic because the time of day can be set back.
    const now = performance.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.startedAtMs + this.#windowMs <= now) {
      window = { count: 0, startedAtMs: now }
      this.#windows.set(key, window)
    }
    window.count += 1
    return { requests: window.count, leftMs: window.startedAtMs + this.#windowMs - now }
  }

  giveBack(key: string): void {
    const window = this.#windows.get(key)
    if (window !== undefined && window.count > 0) window.count -= 1
  }
}

export function countInMemory(max: number, windowMs: number): Counter {
  const store = new MemoryStore(windowMs)
  const keyOf = createClientKey()
  return {
    count: (request) => {
      const { requests, leftMs } = store.count(keyOf(request))
      return {
        remaining: Math.max(0, max - requests),
        resetSeconds: Math.ceil(leftMs / 1000),
        isExceeded: requests > max,
      }
    },
    giveBack: (request) => store.giveBack(keyOf(request)),
  }
}
