import cookie from '@fastify/cookie'
import type { FastifyInstance, FastifyRequest, onRequestHookHandler } from 'fastify'
import { LRUCache } from 'lru-cache'
import { Secret } from '../../config/secret.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { createClientKey, MemoryStore } from '../../http/rate-limit-counter.ts'
import { Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import { endSession, findSessionEnd, openSession, SESSION_SECONDS } from '../sessions.ts'
import type { ConsoleParts } from './parts.ts'

const COOKIE = 'oa-audience-console'

/** Wrong tokens of one address per window, because people mistype a few times. */
const WRONG_PER_ADDRESS = 10
const ADDRESS_WINDOW_MS = 15 * 60_000
/** Wrong tokens of all addresses per minute. Reaching it takes 100 addresses. Sign-ins then wait for the next minute. */
const WRONG_IN_TOTAL = 1_000
const TOTAL_WINDOW_MS = 60_000
/** Addresses that have sent the correct token. Guesses from many addresses must not lock out their operators. */
const TRUSTED_ADDRESSES_MAX = 1_000
const ALL_ADDRESSES = 'all'

const checkSignIn = checker(
  Type.Object({ token: Type.String({ maxLength: 1_024 }) }, { additionalProperties: false }),
)

export interface Sessions {
  /** a hook that refuses requests without a session */
  requireSession: onRequestHookHandler
  /** Whether the session of a request is still open. A stream lasts longer than the check of its request. */
  isOpen: (request: FastifyRequest) => Promise<boolean>
}

/**
 * Adds POST /sign-in, POST /sign-out and GET /api/session. Every request reads its session from the database, so a sign-out takes
 * effect on all instances immediately. If the database does not respond, the request fails with 503 and nobody is signed out.
 */
export async function addSessions(
  app: FastifyInstance,
  { token, database }: Pick<ConsoleParts, 'token' | 'database'>,
): Promise<Sessions> {
  await app.register(cookie)
  const takeAttempt = limitWrongTokens()
  const findEnd = async (request: FastifyRequest) =>
    token && findSessionEnd(database, request.cookies[COOKIE] ?? '', token)

  app.post('/sign-in', async (request, reply) => {
    const attempt = takeAttempt(request)
    const given = checkSignIn(parseUtf8Json(bodyBytes(request)))
    if (token === null || !token.equals(new Secret(given.token))) throw new AppError('wrong_console_token')
    attempt.succeed()
    const { id, endsAt } = await openSession(database, token)
    reply.setCookie(COOKIE, id, { ...attributesFor(request), maxAge: SESSION_SECONDS })
    return { endsAt }
  })

  app.post('/sign-out', async (request, reply) => {
    await endSession(database, request.cookies[COOKIE] ?? '')
    reply.clearCookie(COOKIE, attributesFor(request))
    return reply.code(204).send()
  })

  // Public, because an error response would be noise in the console of a signed-out browser.
  app.get('/api/session', async (request) => ({ endsAt: await findEnd(request) }))

  const isOpen = async (request: FastifyRequest) => (await findEnd(request)) !== null
  const requireSession = async (request: FastifyRequest) => {
    if (!(await isOpen(request))) throw new AppError('signed_out')
  }
  return { requireSession, isOpen }
}

/** `protocol` is https behind a proxy in TRUST_PROXY. */
function attributesFor({ protocol }: FastifyRequest) {
  return { path: '/', httpOnly: true, sameSite: 'strict', secure: protocol === 'https' } as const
}

/** Each attempt counts before its token is compared, so parallel attempts cannot exceed the limit. A correct token undoes its count. */
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

// Refuses requests of other web pages. A page on another port of the same host sends the operator's cookie.

/** A page of another origin can set this header only after a CORS preflight, which this service never allows. */
const CONSOLE_HEADER = 'x-console'

export function requireSameOrigin(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const isAllowed = request.method === 'GET' ? !isSentByOtherPage(request) : isSentByConsole(request)
    done(isAllowed ? undefined : new AppError('foreign_origin'))
  })
}

/**
 * `none`: the operator typed the URL. A link of another site may open a page, but not read data. The route decides what is data,
 * because a URL has many spellings: `/%61pi/fleet` is routed like `/api/fleet`.
 */
function isSentByOtherPage({ headers, routeOptions }: FastifyRequest): boolean {
  const isData = routeOptions.url?.startsWith('/api/') === true
  const site = headers['sec-fetch-site']
  return isData && site !== undefined && site !== 'same-origin' && site !== 'none'
}

/** Browsers send Sec-Fetch-Site over https and to localhost. Over plain http they send only Origin. */
function isSentByConsole({ headers, host }: FastifyRequest): boolean {
  if (headers[CONSOLE_HEADER] !== '1') return false
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin'
  const { origin = '' } = headers
  return URL.canParse(origin) && new URL(origin).host === host
}
