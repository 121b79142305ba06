/**
 * Who is signed in. An operator signs in with a password, with CONSOLE_TOKEN, or at a proxy that sends CONSOLE_USER_HEADER. Every
 * request reads the operator from the database, so a sign-out, a new role and a disabled operator take effect on all instances
 * immediately. If the database does not respond, the request fails with 503 and nobody is signed out.
 */
import cookie from '@fastify/cookie'
import proxyAddr from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Secret } from '../../config/secret.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, StorableText } from '../../http/validate.ts'
import { includesRole, type Operator, type Role } from '../actor.ts'
import { PASSWORD_MAX_LENGTH } from '../people/passwords.ts'
import {
  endSession,
  findSession,
  type OpenedSession,
  openSession,
  SESSION_SECONDS,
  type Session,
  type SessionOwner,
} from '../people/sessions.ts'
import {
  acceptInvitation,
  changePassword,
  findInvited,
  findOperatorByEmail,
  hasPasswords,
  signIn,
} from '../people/sign-in.ts'
import type { ConsoleParts } from './parts.ts'
import { limitSignIns } from './sign-in-limit.ts'

const COOKIE = 'oa-audience-console'

const Password = StorableText({ maxLength: PASSWORD_MAX_LENGTH })
const checkSignIn = checker(
  Type.Union([
    Type.Object({ token: Type.String({ maxLength: 1_024 }) }, { additionalProperties: false }),
    Type.Object(
      { email: StorableText({ maxLength: 254 }), password: Password },
      { additionalProperties: false },
    ),
  ]),
)
const Invitation = Type.String({ maxLength: 64 })
const checkInvitation = checker(Type.Object({ invitation: Invitation }, { additionalProperties: false }))
const checkAcceptance = checker(
  Type.Object({ invitation: Invitation, password: Password }, { additionalProperties: false }),
)
const checkNewPassword = checker(
  Type.Object({ current: Password, password: Password }, { additionalProperties: false }),
)

type SessionParts = Pick<ConsoleParts, 'token' | 'userHeader' | 'database' | 'config'>

export interface Sessions {
  /** The operator of a request. Throws `signed_out`, and for a header of CONSOLE_USER_HEADER `untrusted_proxy` or `unknown_operator`. */
  requireOperator: (request: FastifyRequest) => Promise<Operator>
  /** The operator of a request now, or null. A stream lasts longer than the check of its request. */
  findOperator: (request: FastifyRequest) => Promise<Session['operator'] | null>
}

/** Adds POST /sign-in, POST /sign-out, GET /api/session, POST /invitation, POST /invitation/accept and POST /password. */
export async function addSessions(app: FastifyInstance, parts: SessionParts): Promise<Sessions> {
  await app.register(cookie)
  const { token, database } = parts
  const takeAttempt = limitSignIns()
  const addressOf = createHeaderReader(parts)

  const find = async (request: FastifyRequest): Promise<Session | null> => {
    const address = addressOf(request)
    if (address === null) return findSession(database, request.cookies[COOKIE] ?? '', token)
    const operator = await findOperatorByEmail(database, address)
    if (operator === null) throw new AppError('unknown_operator')
    return { endsAt: null, operator }
  }
  const open = async (request: FastifyRequest, reply: FastifyReply, owner: SessionOwner) =>
    sendSession(request, reply, await openSession(database, owner))
  const sendSession = (request: FastifyRequest, reply: FastifyReply, { id, endsAt }: OpenedSession) => {
    reply.setCookie(COOKIE, id, { ...attributesFor(request), maxAge: SESSION_SECONDS })
    return { endsAt }
  }

  app.post('/sign-in', async (request, reply) => {
    const given = checkSignIn(parseUtf8Json(bodyBytes(request)))
    const attempt = takeAttempt(request, 'email' in given ? given.email.trim().toLowerCase() : undefined)
    if ('token' in given) {
      if (token === null || !token.equals(new Secret(given.token))) throw new AppError('wrong_console_token')
      attempt.succeed()
      return open(request, reply, token)
    }
    const { email, password } = given
    const session = await attempt.compare(() => signIn(database, email, password))
    if (session === null) throw new AppError('wrong_password')
    attempt.succeed()
    return sendSession(request, reply, session)
  })

  app.post('/sign-out', async (request, reply) => {
    await endSession(database, request.cookies[COOKIE] ?? '')
    reply.clearCookie(COOKIE, attributesFor(request))
    return reply.code(204).send()
  })

  // Public, because an error response would be noise in the console of a signed-out browser.
  app.get('/api/session', async (request) => {
    const session = await find(request)
    const { name, kind, role, organizationIds } = session?.operator ?? {}
    return {
      session: session && { endsAt: session.endsAt, operator: { name, kind, role, organizationIds } },
      acceptsToken: token !== null,
      // The page of a new service asks for the token, and nobody has a password yet.
      acceptsPassword: token === null || (await hasPasswords(database)),
    }
  })

  app.post('/invitation', async (request) => {
    const attempt = takeAttempt(request)
    const { invitation } = checkInvitation(parseUtf8Json(bodyBytes(request)))
    const invited = await attempt.compare(() => findInvited(database, invitation))
    if (invited === null) throw new AppError('invalid_invitation')
    attempt.succeed()
    return { email: invited.email }
  })

  app.post('/invitation/accept', async (request, reply) => {
    const attempt = takeAttempt(request)
    const { invitation, password } = checkAcceptance(parseUtf8Json(bodyBytes(request)))
    const invited = await attempt.compare(() => findInvited(database, invitation))
    if (invited === null) throw new AppError('invalid_invitation')
    attempt.succeed()
    const id = await acceptInvitation(database, invitation, password, request.id)
    if (id === null) throw new AppError('invalid_invitation')
    return open(request, reply, id)
  })

  const requireOperator = async (request: FastifyRequest): Promise<Operator> => {
    const session = await find(request)
    if (session === null) throw new AppError('signed_out')
    return { ...session.operator, requestId: request.id }
  }

  app.post('/password', async (request, reply) => {
    const operator = await requireOperator(request)
    if (operator.kind === 'token') throw new AppError('forbidden')
    const attempt = takeAttempt(request, operator.name)
    const { current, password } = checkNewPassword(parseUtf8Json(bodyBytes(request)))
    await attempt.compare(() => changePassword(database, operator, current, password))
    attempt.succeed()
    return open(request, reply, operator.operatorId as bigint)
  })

  const findOperator = async (request: FastifyRequest) =>
    (await find(request).catch(nullIfUnknown))?.operator ?? null
  return { requireOperator, findOperator }
}

function nullIfUnknown(error: unknown): null {
  if (error instanceof AppError && error.code === 'unknown_operator') return null
  throw error
}

/**
 * Reads the address of the operator from CONSOLE_USER_HEADER. The connection must come from a proxy of TRUST_PROXY: X-Forwarded-For
 * says nothing about who wrote the other headers. Null without the header.
 */
function createHeaderReader({ userHeader, config }: Pick<SessionParts, 'userHeader' | 'config'>) {
  if (userHeader === null) return () => null
  const isTrusted = proxyAddr.compile(config.trustProxy)
  return ({ headers, socket }: FastifyRequest): string | null => {
    const address = headers[userHeader]
    if (address === undefined) return null
    if (!isTrusted(socket.remoteAddress ?? '', 0)) throw new AppError('untrusted_proxy')
    // Node joins repeated headers with a comma, which no address contains: then no operator is found.
    return String(address)
  }
}

/** `protocol` is https behind a proxy in TRUST_PROXY. */
function attributesFor({ protocol }: FastifyRequest) {
  return { path: '/', httpOnly: true, sameSite: 'strict', secure: protocol === 'https' } as const
}

// Roles of routes.

declare module 'fastify' {
  interface FastifyContextConfig {
    role?: Role
  }
  interface FastifyRequest {
    operator: Operator | null
  }
}

/** Options of a route: the least role that may use it. */
export const VIEWER = { config: { role: 'viewer' } } as const
export const MANAGER = { config: { role: 'manager' } } as const
export const OWNER = { config: { role: 'owner' } } as const

/** The signed-in operator of a route with a role. */
export function operatorOf({ operator }: FastifyRequest): Operator {
  if (operator === null) throw new Error('the route has no role')
  return operator
}

/** Every route of `api` names a role, and refuses operators with a lesser one before it reads anything. */
export function requireRoles(api: FastifyInstance, { requireOperator }: Sessions): void {
  api.addHook('onRoute', ({ config, method, url }) => {
    if (config?.role === undefined) throw new Error(`${String(method)} ${url} has no role`)
  })
  api.decorateRequest('operator', null)
  api.addHook('onRequest', async (request) => {
    const operator = await requireOperator(request)
    const { role } = request.routeOptions.config
    if (role === undefined || !includesRole(operator.role, role)) throw new AppError('forbidden')
    request.operator = operator
  })
}

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
