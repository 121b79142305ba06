/** Limits the requests of each client address, for all routes and statuses together. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { AppError } from '../errors.ts'
import { countInMemory, type Limit } from './rate-limit-counter.ts'
import { countInRedis } from './rate-limit-redis.ts'

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
