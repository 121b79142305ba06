/** One limit for every request of a client address, whatever it asks for and however it is answered. */
import { isIP } from 'node:net'
import rateLimit, { normalizeIP } from '@fastify/rate-limit'
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Redis } from 'ioredis'
import { BoundedMap } from '../bounded-map.ts'
import type { Config } from '../config.ts'
import { AppError } from '../errors.ts'

/** Addresses that are remembered. Beyond it the oldest windows are forgotten: memory is bounded. */
const ADDRESSES_MAX = 200_000
/** Addresses whose key is remembered: those of senders that come again and again. */
const KEYS_MAX = 10_000
/** Characters: an IPv6 address with brackets and a port. What a proxy passes on may be as long as a header. */
const ADDRESS_MAX_LENGTH = 64
/** Bits of an IPv6 address that one customer is given: the rest is theirs to vary. */
const IPV6_SUBNET_BITS = 64
/** A limit that is slower than the work it guards is none: beyond this Redis counts as away. */
const REDIS_TIMEOUT_MS = 250
const REDIS_PREFIX = 'oa-audience-rate-limit-'

/** What is left to an address once a request of it has been counted. */
interface Limit {
  remaining: number
  resetSeconds: number
  isExceeded: boolean
}

interface Counter {
  /** at once where nobody need be asked: a promise would cost every request more than the counting */
  count: (request: FastifyRequest) => Limit | Promise<Limit>
  giveBack: (request: FastifyRequest) => void
}

/** Fixed windows, each beginning with an address's first request. */
export class MemoryStore {
  readonly #windows = new BoundedMap<string, { count: number; startedAtMs: number }>(ADDRESSES_MAX)
  readonly #windowMs: number

  constructor(windowMs: number) {
    this.#windowMs = windowMs
  }

  /** Requests in the address's window, this one included, and how long it still lasts. */
  count(key: string): { requests: number; leftMs: number } {
    // Not the time of day, which may be set back.
    const now = performance.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.startedAtMs + this.#windowMs <= now) {
      this.#windows.delete(key)
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
  const counter = redisUrl
    ? await countInRedis(app, max, windowMs, redisUrl.reveal())
    : countInMemory(max, windowMs)
  const judge = (reply: FastifyReply, { remaining, resetSeconds, isExceeded }: Limit) => {
    setHeaders(reply, max, remaining, resetSeconds)
    if (!isExceeded) return undefined
    return new AppError('rate_limited', { retryAfterSeconds: Math.max(1, resetSeconds) })
  }
  // A hook of the whole server, not of each route, so that it also meets paths that no route answers.
  app.addHook('onRequest', (request, reply, done) => {
    const limit = counter.count(request)
    if (limit instanceof Promise) limit.then((counted) => done(judge(reply, counted)), done)
    else done(judge(reply, limit))
  })
  app.limitUnroutable = async (request, reply) => {
    const refusal = judge(reply, await counter.count(request))
    if (refusal) throw refusal
  }
  return (request, reply) => {
    if (!spareSigned) return
    counter.giveBack(request)
    const remaining = Number(reply.getHeader('ratelimit-remaining'))
    setHeaders(reply, max, Math.min(max, remaining + 1), Number(reply.getHeader('ratelimit-reset')))
  }
}

/** Whose requests are counted together. A client that hung up meanwhile has no address any more. */
function keyMaker(): (request: FastifyRequest) => string {
  // An IPv6 address takes 10 µs to be understood, a fifth of what a delivery takes.
  const keys = new BoundedMap<string, string>(KEYS_MAX)
  return ({ ip = '' }) => {
    const known = keys.get(ip)
    if (known !== undefined) return known
    const key = keyOfAddress(ip)
    if (ip.length <= ADDRESS_MAX_LENGTH) keys.set(ip, key)
    return key
  }
}

function keyOfAddress(told: string): string {
  // Some proxies add the port to the address: each connection would have a limit of its own.
  const address = /^\[([^\]]+)\](?::\d+)?$/.exec(told)?.[1] ?? /^([\d.]+):\d+$/.exec(told)?.[1] ?? told
  return isIP(address) === 0 ? 'unknown' : normalizeIP(address, IPV6_SUBNET_BITS)
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

function countInMemory(max: number, windowMs: number): Counter {
  const store = new MemoryStore(windowMs)
  const keyOf = keyMaker()
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

async function countInRedis(
  app: FastifyInstance,
  max: number,
  windowMs: number,
  url: string,
): Promise<Counter> {
  const redis = new Redis(url, {
    connectTimeout: 2_000,
    commandTimeout: REDIS_TIMEOUT_MS,
    // One that is silent is given up, and what it was asked with it: counted later, it would limit the innocent.
    socketTimeout: REDIS_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    retryStrategy: (attempt) => Math.min(attempt * 200, 2_000),
  })
  const keyOf = keyMaker()
  const outage = new Outage(app.log)
  redis.on('error', (error: Error & { code?: string }) => outage.begin(error))
  app.addHook('onClose', async () => redis.disconnect())
  await app.register(rateLimit, {
    global: false,
    max,
    timeWindow: windowMs,
    keyGenerator: keyOf,
    redis,
    nameSpace: REDIS_PREFIX,
  })
  const count = app.createRateLimit()
  return {
    count: async (request) => {
      const unlimited = { remaining: max, resetSeconds: 0, isExceeded: false }
      try {
        const limit = await count(request)
        outage.end()
        if (limit.isAllowed) return unlimited
        const { remaining, ttlInSeconds: resetSeconds, isExceeded } = limit
        return { remaining, resetSeconds, isExceeded }
      } catch (error) {
        outage.begin(error as Error)
        return unlimited
      }
    },
    giveBack: (request) => {
      // Only while the window lasts: a decrement alone would make a key that never expires.
      const script = `if redis.call('exists', KEYS[1]) == 1 then redis.call('decr', KEYS[1]) end`
      redis.eval(script, 1, REDIS_PREFIX + keyOf(request)).catch(() => undefined)
    },
  }
}

/** The first word with which Redis refused, such as OOM or READONLY: the rest quotes the command. Null: it did not refuse. */
export function redisRefusal({ name, message }: Error): string | null {
  return name === 'ReplyError' ? (message.split(' ')[0] ?? null) : null
}

/** Logged once, not once per request or per attempt to connect. It ends when Redis counts again, not when it connects. */
class Outage {
  readonly #log: FastifyBaseLogger
  #lasts = false

  constructor(log: FastifyBaseLogger) {
    this.#log = log
  }

  begin(error: Error & { code?: string }): void {
    if (this.#lasts) return
    this.#lasts = true
    const fault = error.code ?? redisRefusal(error) ?? error.name
    this.#log.warn({ fault }, 'Redis is away: requests are not limited meanwhile')
  }

  end(): void {
    if (!this.#lasts) return
    this.#lasts = false
    this.#log.info('Redis is back: requests are limited again')
  }
}
