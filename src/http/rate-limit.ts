/** Limits the requests of each client address, for all routes and statuses together. */
import { isIP } from 'node:net'
import rateLimit, { normalizeIP } from '@fastify/rate-limit'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { AppError } from '../errors.ts'

/** Takes back the count of a delivery with a valid signature. LINE's servers share few addresses. */
export type SpareSigned = (request: FastifyRequest, reply: FastifyReply) => void

/** Limits every route, including unknown paths. Call it before any route is added. */
export async function limitRate(
  app: FastifyInstance,
  { max, windowMs, spareSigned }: Config['rateLimit'],
  redisUrl: Config['redisUrl'],
): Promise<SpareSigned> {
  if (max === 0 || windowMs === 0) return () => undefined
  const counter = redisUrl
    ? await countInRedis(app, max, windowMs, redisUrl.reveal())
    : countInMemory(max, windowMs)
  const apply = (reply: FastifyReply, { remaining, resetSeconds, isExceeded }: Limit) => {
    setHeaders(reply, max, remaining, resetSeconds)
    if (!isExceeded) return undefined
    return new AppError('rate_limited', { retryAfterSeconds: Math.max(1, resetSeconds) })
  }
  // A hook of the whole server also runs for paths that match no route.
  app.addHook('onRequest', (request, reply, done) => {
    const limit = counter.count(request)
    if (limit instanceof Promise) limit.then((counted) => done(apply(reply, counted)), done)
    else done(apply(reply, limit))
  })
  app.limitUnroutable = async (request, reply) => apply(reply, await counter.count(request))
  return (request, reply) => {
    if (!spareSigned) return
    counter.giveBack(request)
    const remaining = Math.min(max, Number(reply.getHeader('ratelimit-remaining')) + 1)
    reply.headers({ 'ratelimit-remaining': remaining, 'x-ratelimit-remaining': remaining })
  }
}

/** Sets the headers of the IETF draft and the older names, which most clients read. */
function setHeaders(reply: FastifyReply, max: number, remaining: number, resetSeconds: number): void {
  reply.headers({
    'ratelimit-limit': max,
    'ratelimit-remaining': remaining,
    'ratelimit-reset': resetSeconds,
    'x-ratelimit-limit': max,
    'x-ratelimit-remaining': remaining,
    'x-ratelimit-reset': resetSeconds,
  })
}

const KEYS_MAX = 10_000
/** An IPv6 address with brackets and a port fits. A proxy may send an address as long as a header. */
const ADDRESS_MAX_LENGTH = 64
/** A customer receives a /64 and can use any address in it. */
const IPV6_SUBNET_BITS = 64

interface Limit {
  remaining: number
  resetSeconds: number
  isExceeded: boolean
}

interface Counter {
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

/**
 * Some proxies append the port. If it stayed, every connection would have a separate limit, and no proxy would be trusted. Servers that
 * listen on :: write IPv4 addresses as ::ffff:192.0.2.1.
 */
export const bareAddress = (address: string): string => {
  if (!address.includes(':')) return address
  const host = /^\[([^\]]+)\](?::\d+)?$/.exec(address)?.[1] ?? /^([\d.]+):\d+$/.exec(address)?.[1] ?? address
  return host.replace(/^::ffff:(?=[\d.]+$)/i, '')
}

function keyOfAddress(received: string): string {
  const address = bareAddress(received)
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

function countInMemory(max: number, windowMs: number): Counter {
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

// Rate limit counts in Redis, shared by all instances. While Redis is unreachable, requests are not limited.

/** Every request waits for Redis, so a slow Redis counts as unreachable. */
const REDIS_TIMEOUT_MS = 250
const REDIS_PREFIX = 'oa-audience-rate-limit-'

/** KEYS[1] is the count. Only an existing count is decremented, because DECR would create a key that never expires. */
const GIVE_BACK_SCRIPT = `if redis.call('exists', KEYS[1]) == 1 then redis.call('decr', KEYS[1]) end`

async function countInRedis(
  app: FastifyInstance,
  max: number,
  windowMs: number,
  url: string,
): Promise<Counter> {
  // An outage is logged once, not once per request or connection attempt. It ends when Redis counts a request again.
  let isDown = false
  const beginOutage = (error: Error & { code?: string }) => {
    const fault = error.code ?? redisRefusal(error) ?? error.name
    if (!isDown) app.log.warn({ fault }, 'Redis is unreachable: requests are not limited')
    isDown = true
  }
  const redis = connect(url)
  redis.on('error', beginOutage)
  app.addHook('onClose', async () => redis.disconnect())
  const keyOf = createClientKey()
  await app.register(rateLimit, {
    global: false,
    max,
    timeWindow: windowMs,
    keyGenerator: keyOf,
    redis,
    nameSpace: REDIS_PREFIX,
  })
  const count = app.createRateLimit()
  const unlimited = { remaining: max, resetSeconds: 0, isExceeded: false }
  return {
    count: async (request) => {
      try {
        const limit = await count(request)
        if (isDown) app.log.info('Redis is reachable again: requests are limited')
        isDown = false
        if (limit.isAllowed) return unlimited
        return {
          remaining: limit.remaining,
          resetSeconds: limit.ttlInSeconds,
          isExceeded: limit.isExceeded,
        }
      } catch (error) {
        beginOutage(error as Error)
        return unlimited
      }
    },
    giveBack: (request) => {
      redis.eval(GIVE_BACK_SCRIPT, 1, REDIS_PREFIX + keyOf(request)).catch(() => undefined)
    },
  }
}

function connect(url: string): Redis {
  return new Redis(url, {
    connectTimeout: 2_000,
    commandTimeout: REDIS_TIMEOUT_MS,
    // Closes a silent connection, so that no commands queue in it. After an outage, queued commands would count old requests.
    socketTimeout: REDIS_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    retryStrategy: (attempt) => Math.min(attempt * 200, 2_000),
  })
}

/** Returns the error code of a Redis reply, such as OOM or READONLY, or null. The rest of the message quotes the command. */
export function redisRefusal({ name, message }: Error): string | null {
  return name === 'ReplyError' ? (message.split(' ')[0] ?? null) : null
}
