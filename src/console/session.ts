/** Sign-in by CONSOLE_TOKEN, and the cookie that proves it. */
import { hkdfSync } from 'node:crypto'
import cookie from '@fastify/cookie'
import type { FastifyInstance, FastifyRequest, onRequestHookHandler } from 'fastify'
import { LRUCache } from 'lru-cache'
import Type from 'typebox'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { createClientKey } from '../http/rate-limit-counter.ts'
import { MemoryStore } from '../http/rate-limit-memory.ts'
import { checker } from '../http/validate.ts'
import { Secret } from '../secret.ts'

const COOKIE = 'oa-audience-console'
/** A working day with its overtime. */
export const SESSION_MS = 12 * 3_600_000

/** Wrong tokens of one address in a window. People mistype a few times. */
const WRONG_PER_ADDRESS = 10
const ADDRESS_WINDOW_MS = 15 * 60_000
/** Wrong tokens of all addresses in a minute, which takes 100 addresses. Sign-ins then wait for the next minute. */
const WRONG_IN_TOTAL = 1_000
const TOTAL_WINDOW_MS = 60_000
/** Addresses that have sent the right token. Guesses from many addresses must not lock their operators out. */
const TRUSTED_ADDRESSES_MAX = 1_000
/** The store of all addresses has one window. */
const ALL_ADDRESSES = 'all'

declare module 'fastify' {
  interface FastifyRequest {
    /** milliseconds since 1970; 0: nobody is signed in */
    sessionEndsAtMs: number
  }
}

const checkSignIn = checker(
  Type.Object({ token: Type.String({ maxLength: 1_024 }) }, { additionalProperties: false }),
)

/**
 * Adds POST /sign-in, POST /sign-out and GET /api/session. No session is stored: the cookie holds the time at which it ends, signed with a key
 * that is derived from the token. So instances share sessions, and another token ends all of them.
 * @returns a hook that lets only requests with a session through
 */
export async function addSessions(
  app: FastifyInstance,
  { token, now }: { token: Secret; now: () => number },
): Promise<onRequestHookHandler> {
  await app.register(cookie, { secret: sessionKey(token) })
  app.decorateRequest('sessionEndsAtMs', 0)
  const takeAttempt = limitWrongTokens()

  app.post('/sign-in', async (request, reply) => {
    const attempt = takeAttempt(request)
    const given = checkSignIn(parseUtf8Json(bodyBytes(request)))
    if (!token.equals(new Secret(given.token))) throw new AppError('wrong_console_token')
    attempt.succeed()
    const endsAtMs = now() + SESSION_MS
    reply.setCookie(COOKIE, String(endsAtMs), {
      ...attributesFor(request),
      signed: true,
      maxAge: SESSION_MS / 1000,
    })
    return { endsAt: new Date(endsAtMs).toISOString() }
  })

  app.post('/sign-out', async (request, reply) => {
    reply.clearCookie(COOKIE, attributesFor(request))
    return reply.code(204).send()
  })

  // For everybody: the page asks what to show, and an error would be noise in the browser's console.
  app.get('/api/session', async (request) => {
    const endsAtMs = sessionEndOf(request)
    return { endsAt: endsAtMs > now() ? new Date(endsAtMs).toISOString() : null }
  })

  return (request, _reply, done) => {
    request.sessionEndsAtMs = sessionEndOf(request)
    done(request.sessionEndsAtMs > now() ? undefined : new AppError('signed_out'))
  }
}

/** HKDF, so that a cookie says nothing about the token. */
function sessionKey(token: Secret): Buffer {
  return Buffer.from(hkdfSync('sha256', token.reveal(), '', 'oa-audience console session', 32))
}

/** `protocol` is https behind a proxy that TRUST_PROXY names. */
function attributesFor({ protocol }: FastifyRequest) {
  return { path: '/', httpOnly: true, sameSite: 'strict', secure: protocol === 'https' } as const
}

/** 0: there is no cookie, or its signature is wrong. */
function sessionEndOf(request: FastifyRequest): number {
  const { valid, value } = request.unsignCookie(request.cookies[COOKIE] ?? '')
  return valid && value !== null && /^\d{1,15}$/.test(value) ? Number(value) : 0
}

/** Each attempt counts before its token is compared, so parallel attempts cannot exceed the limit. A right token gives it back. */
function limitWrongTokens(): (request: FastifyRequest) => { succeed: () => void } {
  const trusted = new LRUCache<string, true>({ max: TRUSTED_ADDRESSES_MAX })
  const addresses = new MemoryStore(ADDRESS_WINDOW_MS)
  const total = new MemoryStore(TOTAL_WINDOW_MS)
  const keyOf = createClientKey()
  return (request) => {
    const key = keyOf(request)
    const own = addresses.count(key)
    if (own.requests > WRONG_PER_ADDRESS) throw limited(own.leftMs)
    const all = total.count(ALL_ADDRESSES)
    if (all.requests > WRONG_IN_TOTAL && !trusted.has(key)) {
      addresses.giveBack(key)
      throw limited(all.leftMs)
    }
    return {
      succeed: () => {
        trusted.set(key, true)
        addresses.giveBack(key)
        total.giveBack(ALL_ADDRESSES)
      },
    }
  }
}

const limited = (leftMs: number) =>
  new AppError('sign_in_limited', { retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)) })
