/** Rate limit counts in Redis, shared by all instances. While Redis is unreachable, requests are not limited. */
import rateLimit from '@fastify/rate-limit'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import { Redis } from 'ioredis'
import { type Counter, createClientKey } from './rate-limit-counter.ts'

/** Every request waits for Redis, so a slow Redis counts as unreachable. */
const REDIS_TIMEOUT_MS = 250
const REDIS_PREFIX = 'oa-audience-rate-limit-'

/** KEYS[1] is the count. Only an existing count is decremented, because DECR would create a key that never expires. */
const GIVE_BACK_SCRIPT = `if redis.call('exists', KEYS[1]) == 1 then redis.call('decr', KEYS[1]) end`

export async function countInRedis(
  app: FastifyInstance,
  max: number,
  windowMs: number,
  url: string,
): Promise<Counter> {
  const outage = new Outage(app.log)
  const redis = connect(url)
  redis.on('error', (error) => outage.begin(error))
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
        outage.end()
        if (limit.isAllowed) return unlimited
        return {
          remaining: limit.remaining,
          resetSeconds: limit.ttlInSeconds,
          isExceeded: limit.isExceeded,
        }
      } catch (error) {
        outage.begin(error as Error)
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

/** Logs an outage once, not once per request or connection attempt. It ends when Redis counts a request again. */
class Outage {
  readonly #log: FastifyBaseLogger
  #isActive = false

  constructor(log: FastifyBaseLogger) {
    this.#log = log
  }

  begin(error: Error & { code?: string }): void {
    if (this.#isActive) return
    this.#isActive = true
    const fault = error.code ?? redisRefusal(error) ?? error.name
    this.#log.warn({ fault }, 'Redis is unreachable: requests are not limited')
  }

  end(): void {
    if (!this.#isActive) return
    this.#isActive = false
    this.#log.info('Redis is reachable again: requests are limited')
  }
}
