/**
 * Who is signed in. An operator signs in with a password, with CONSOLE_TOKEN, or at a proxy that sends CONSOLE_USER_HEADER. Every
 * request reads the operator from the database, so a sign-out, a new role and a disabled operator take effect on all instances
 * immediately. If the database does not respond, the request fails with 503 and nobody is signed out.
 */
import proxyAddr from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type AccountDetails, findAccountDetails } from '../accounts/accounts.ts'
import { AppError } from '../errors.ts'
import { ownerShare, readerShare, type TextParts } from '../http/streamer.ts'
import { includesRole, type Operator, type OrganizationIds, type Role, seesAll } from '../operators/actor.ts'
import {
  endSession,
  findSession,
  type OpenedSession,
  SESSION_SECONDS,
  type Session,
} from '../operators/sessions.ts'
import { type DeviceOwner, findOperatorByEmail, newDevice } from '../operators/sign-in.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type ConsoleParts, requireId } from './parts.ts'

const COOKIE = 'oa-audience-console'
const DEVICE_COOKIE = 'oa-audience-device'
/** The longest time that browsers keep a cookie. Each sign-in begins it again. */
const DEVICE_SECONDS = 400 * 86_400

type SessionParts = Pick<ConsoleParts, 'token' | 'userHeader' | 'config'> & { database: Queryable }

export interface Sessions {
  /** The session of a request, or null. Throws for a header of CONSOLE_USER_HEADER as requireOperator does. */
  find: (request: FastifyRequest) => Promise<Session | null>
  /** The operator of a request. Throws `signed_out`, and for a header of CONSOLE_USER_HEADER `untrusted_proxy` or `unknown_operator`. */
  requireOperator: (request: FastifyRequest) => Promise<Operator>
  /** The same for a route with a role, and throws `forbidden` for a lesser one. A stream lasts longer, and calls it again. */
  requireRole: (request: FastifyRequest) => Promise<Operator>
}

export function createSessions(parts: SessionParts): Sessions {
  const { token, database } = parts
  const addressOf = createHeaderReader(parts)
  const find = async (request: FastifyRequest): Promise<Session | null> => {
    const address = addressOf(request)
    if (address === null) return findSession(database, sessionIdOf(request), token)
    const operator = await findOperatorByEmail(database, address)
    if (operator === null) throw new AppError('unknown_operator')
    return { endsAt: null, operator }
  }
  const requireOperator = async (request: FastifyRequest): Promise<Operator> => {
    const session = await find(request)
    if (session === null) throw new AppError('signed_out')
    return { ...session.operator, requestId: request.id }
  }
  const requireRole = async (request: FastifyRequest): Promise<Operator> => {
    const operator = await requireOperator(request)
    const { role } = request.routeOptions.config
    if (role === undefined || !includesRole(operator.role, role)) throw new AppError('forbidden')
    return operator
  }
  return { find, requireOperator, requireRole }
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

// The cookies of a session and of a browser. server.ts registers the plugin for them.

const sessionIdOf = (request: FastifyRequest): string => request.cookies[COOKIE] ?? ''

/** Browsers send it to /sign-in alone, also after a sign-out. */
export const deviceCookieOf = (request: FastifyRequest): string => request.cookies[DEVICE_COOKIE] ?? ''

/** Sends the cookies of the session and of the browser, whose next sign-in has a limit of its own. */
export async function sendSession(
  database: Queryable,
  request: FastifyRequest,
  reply: FastifyReply,
  { id, endsAt }: OpenedSession,
  owner: DeviceOwner,
): Promise<{ endsAt: string }> {
  const device = await newDevice(database, owner)
  const attributes = attributesFor(request)
  reply.setCookie(COOKIE, id, { ...attributes, maxAge: SESSION_SECONDS })
  if (device !== null)
    reply.setCookie(DEVICE_COOKIE, device, { ...attributes, path: '/sign-in', maxAge: DEVICE_SECONDS })
  return { endsAt }
}

export async function endSessionOf(
  database: Queryable,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  await endSession(database, sessionIdOf(request))
  reply.clearCookie(COOKIE, attributesFor(request))
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

export const VIEWER = { config: { role: 'viewer' } } as const
export const MANAGER = { config: { role: 'manager' } } as const
export const OWNER = { config: { role: 'owner' } } as const

export function operatorOf({ operator }: FastifyRequest): Operator {
  if (operator === null) throw new Error('the route has no role')
  return operator
}

export type OfAccount = { Params: { account: string } }

export function accountOf(database: Queryable, request: FastifyRequest<OfAccount>): Promise<AccountDetails> {
  const { organizationIds } = operatorOf(request)
  return findAccountDetails(database, organizationIds, requireId(request.params.account))
}

/** Every route of `api` names a role, and refuses operators with a lesser one before it reads anything. */
export function requireRoles(api: FastifyInstance, { requireRole }: Sessions): void {
  api.addHook('onRoute', ({ config, method, url }) => {
    if (config?.role === undefined) throw new Error(`${String(method)} ${url} has no role`)
  })
  api.decorateRequest('operator', null)
  api.addHook('onRequest', async (request) => {
    request.operator = await requireRole(request)
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

// Downloads, which may last longer than a session.

interface Download {
  organizationIds: OrganizationIds
  fileName: string
  mediaType: string
  /** Stores the entry of the activity log, before the first part is read. It is not called for a download that is refused. */
  record?: () => Promise<void>
  read: () => TextParts
}

/** Sends a file to an operator, part by part, for as long as the operator may use the route and sees the organizations. */
export function sendDownload(
  reply: FastifyReply,
  { streamer, requireRole }: Pick<ConsoleParts, 'streamer' | 'requireRole'>,
  { organizationIds, fileName, mediaType, record, read }: Download,
): Promise<FastifyReply> {
  const { operatorId, name } = operatorOf(reply.request)
  const reader = {
    // A team shares CONSOLE_TOKEN, and its only stream.
    shares: [
      readerShare(`operator ${operatorId ?? name}`),
      ...(organizationIds ?? []).map((id) => ownerShare('organization', id)),
    ],
    check: async () => {
      const operator = await requireRole(reply.request)
      if (!seesAll(operator.organizationIds, organizationIds)) throw new AppError('forbidden')
    },
  }
  return streamer.send(reply, mediaType, reader, async function* () {
    await record?.()
    reply.header('content-disposition', `attachment; filename="${fileName}"`)
    yield* read()
  })
}
