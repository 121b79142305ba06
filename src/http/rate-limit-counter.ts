/** What the rate limit counts: requests of one client address. The counts live in memory or in Redis. */
import { isIP } from 'node:net'
import { normalizeIP } from '@fastify/rate-limit'
import type { FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'

/** Addresses whose key is cached. */
const KEYS_MAX = 10_000
/** Characters: an IPv6 address with brackets and a port. A proxy may send an address as long as a header. */
const ADDRESS_MAX_LENGTH = 64
/** Bits of an IPv6 address. A customer receives a /64 and can use any address in it. */
const IPV6_SUBNET_BITS = 64

/** The state of an address's window after one more request was counted. */
export interface Limit {
  remaining: number
  resetSeconds: number
  isExceeded: boolean
}

export interface Counter {
  count: (request: FastifyRequest) => Limit | Promise<Limit>
  giveBack: (request: FastifyRequest) => void
}

/** Returns a function that maps a request to the key of its count. */
export function createClientKey(): (request: FastifyRequest) => string {
  // Normalising an IPv6 address takes 10 µs, a fifth of the time for a whole delivery.
  const keys = new LRUCache<string, string>({ max: KEYS_MAX })
  // A client that has already disconnected has no address.
  return ({ ip = '' }) => {
    const cached = keys.get(ip)
    if (cached !== undefined) return cached
    const key = keyOfAddress(ip)
    if (ip.length <= ADDRESS_MAX_LENGTH) keys.set(ip, key)
    return key
  }
}

function keyOfAddress(received: string): string {
  // Some proxies append the port. Without this, every connection would have a limit of its own.
  const address =
    /^\[([^\]]+)\](?::\d+)?$/.exec(received)?.[1] ?? /^([\d.]+):\d+$/.exec(received)?.[1] ?? received
  return isIP(address) === 0 ? 'unknown' : normalizeIP(address, IPV6_SUBNET_BITS)
}
