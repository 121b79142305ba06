/** One limit for every request of a client address, whatever it asks for and however it is answered. */
import rateLimit, { normalizeIP } from '@fastify/rate-limit'
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Redis } from 'ioredis'
import { BoundedMap } from '../bounded-map.ts'
import type { Config } from '../config.ts'
import { AppError } from '../errors.ts'

/** Addresses that are remembered. Beyond it the oldest windows are forgotten: memory is bounded. */
const ADDRESSES_MAX = 200_000
/** Bits of an IPv6 address that one customer is given: the rest is theirs to vary. */
const IPV6_SUBNET_BITS = 64
/** A limit that is slower than the work it guards is none: beyond this Redis counts as away. */
const REDIS_TIMEOUT_MS = 250
const REDIS_PREFIX = 'oa-audience-rate-limit-'

type Count = (error: Error | null, result?: { current: number; ttl: number }) => void

/** Fixed windows, each beginning with an address's first request. */
export class MemoryStore {
  readonly #windows = new BoundedMap<string, { count: number; startedAtMs: number }>(ADDRESSES_MAX)
  readonly #windowMs: number

  constructor(windowMs: number) {
    this.#windowMs = windowMs
  }

  incr(key: string, callback: Count): void {
    const now = Date.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.startedAtMs + this.#windowMs <= now) {
      this.#windows.delete(key)
      window = { count: 0, startedAtMs: now }
      this.#windows.set(key, window)
    }
    window.count += 1
    callback(null, { current: window.count, ttl: window.startedAtMs + this.#windowMs - now })
  }

  giveBack(key: string): void {
    const window = this.#windows.get(key)
    if (window !== undefined && window.count > 0) window.count -= 1
  }

  child(): this {
    return this
  }
}

declare module 'fastify' {
  interface FastifyInstance {
    /** for a request that no hook meets, because its address cannot even be decoded */
    limitUnroutable: ((request: FastifyRequest, reply: FastifyReply) => Promise<void>) | null
  }
}

/** Gives a request's count back: its sender proved to be the platform, whose servers share few addresses. */
export type SpareSigned = (request: FastifyRequest, reply: FastifyReply) => void

/**
 * Limits every route, unknown ones included. To be called before any route is added. With Redis the count is
 * shared by all instances; while Redis is away requests are let through.
 * @returns what to call for a delivery whose signature was valid
 */
export async function limitRate(
  app: FastifyInstance,
  { max, windowMs, spareSigned }: Config['rateLimit'],
  redisUrl: Config['redisUrl'],
): Promise<SpareSigned> {
  if (max === 0 || windowMs === 0) return () => undefined
  // A client that hung up meanwhile has no address any more.
  const keyOf = (request: FastifyRequest) => normalizeIP(request.ip ?? '', IPV6_SUBNET_BITS)
  const { options, giveBack } = redisUrl ? inRedis(app, redisUrl.reveal()) : inMemory(windowMs)
  await app.register(rateLimit, {
    global: false,
    max,
    timeWindow: windowMs,
    keyGenerator: keyOf,
    ...options,
  })
  const count = app.createRateLimit()
  // A hook of the whole server, not of each route, so that it also meets paths that no route answers.
  const limitRequest = async (request: FastifyRequest, reply: FastifyReply) => {
    const limit = await count(request)
    if (limit.isAllowed) return
    setHeaders(reply, max, limit.remaining, limit.ttlInSeconds)
    if (limit.isExceeded) {
      throw new AppError('rate_limited', { retryAfterSeconds: Math.max(1, limit.ttlInSeconds) })
    }
  }
  app.addHook('onRequest', limitRequest)
  app.limitUnroutable = limitRequest
  return (request, reply) => {
    if (!spareSigned) return
    giveBack(keyOf(request))
    const remaining = Number(reply.getHeader('ratelimit-remaining'))
    setHeaders(reply, max, Math.min(max, remaining + 1), Number(reply.getHeader('ratelimit-reset')))
  }
}

/** Under the names of the draft standard and under the older ones that most clients read. */
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

function inMemory(windowMs: number) {
  const store = new MemoryStore(windowMs)
  // The plugin calls `new` on what it is given; a constructor that returns an object yields that object.
  const Store = function Store() {
    return store
  } as never
  return { options: { store: Store }, giveBack: (key: string) => store.giveBack(key) }
}

function inRedis(app: FastifyInstance, url: string) {
  const redis = new Redis(url, {
    connectTimeout: 2_000,
    commandTimeout: REDIS_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    retryStrategy: (attempt) => Math.min(attempt * 200, 2_000),
  })
  logOutages(redis, app.log)
  app.addHook('onClose', async () => redis.disconnect())
  const giveBack = (key: string) => {
    // Only while the window lasts: a decrement alone would make a key that never expires.
    const script = `if redis.call('exists', KEYS[1]) == 1 then redis.call('decr', KEYS[1]) end`
    redis.eval(script, 1, REDIS_PREFIX + key).catch(() => undefined)
  }
  return { options: { redis, nameSpace: REDIS_PREFIX, skipOnError: true }, giveBack }
}

/** Once per outage, not once per request or per attempt to connect. */
function logOutages(redis: Redis, log: FastifyBaseLogger): void {
  let away = false
  redis.on('error', (error: Error & { code?: string }) => {
    if (!away)
      log.warn({ fault: error.code ?? error.name }, 'Redis is away: requests are not limited meanwhile')
    away = true
  })
  redis.on('ready', () => {
    if (away) log.info('Redis is back: requests are limited again')
    away = false
  })
}
