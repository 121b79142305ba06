/** How operators sign in and out, accept an invitation and change their password. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Secret } from '../../config/secret.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, StorableText } from '../../http/validate.ts'
import type { Queryable } from '../../postgres/statement.ts'
import { PASSWORD_MAX_LENGTH } from '../people/passwords.ts'
import { type OpenedSession, openSession } from '../people/sessions.ts'
import {
  acceptInvitation,
  changePassword,
  type DeviceOwner,
  findDevice,
  findInvited,
  hasPasswords,
  newDevice,
  signIn,
} from '../people/sign-in.ts'
import type { ConsoleParts } from './parts.ts'
import { deviceCookieOf, endSessionOf, type Sessions, sendSession } from './session.ts'
import { limitSignIns, type TakeAttempt } from './sign-in-limit.ts'

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

type Parts = Pick<ConsoleParts, 'token' | 'database'>

/** Adds POST /sign-in, POST /sign-out, GET /api/session, POST /invitation, POST /invitation/accept and POST /password. */
export function signInRoutes(app: FastifyInstance, parts: Parts, sessions: Sessions): void {
  const takeAttempt = limitSignIns()
  sessionRoutes(app, parts, sessions, takeAttempt)
  invitationRoutes(app, parts, takeAttempt)
  passwordRoute(app, parts, sessions, takeAttempt)
}

function sessionRoutes(
  app: FastifyInstance,
  { token, database }: Parts,
  { find }: Sessions,
  takeAttempt: TakeAttempt,
): void {
  app.post('/sign-in', async (request, reply) => {
    const given = checkSignIn(parseUtf8Json(bodyBytes(request)))
    if ('token' in given) {
      const device = token && (await findDevice(database, deviceCookieOf(request), token))
      const attempt = takeAttempt(request, { kind: 'token' }, device)
      if (token === null || !token.equals(new Secret(given.token))) throw new AppError('wrong_console_token')
      attempt.succeed()
      return sendTrusted(database, request, reply, await openSession(database, token), token)
    }
    const email = given.email.trim().toLowerCase()
    const device = await findDevice(database, deviceCookieOf(request), email)
    const attempt = takeAttempt(request, { kind: 'password', email }, device)
    const session = await attempt.compare(() => signIn(database, email, given.password, device !== null))
    if (session === null) throw new AppError('wrong_password')
    attempt.succeed()
    return sendTrusted(database, request, reply, session, email)
  })

  app.post('/sign-out', async (request, reply) => {
    await endSessionOf(database, request, reply)
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
}

/** Sends the cookies of the session and of the browser, whose next sign-in has a limit of its own. */
async function sendTrusted(
  database: Queryable,
  request: FastifyRequest,
  reply: FastifyReply,
  session: OpenedSession,
  owner: DeviceOwner,
): Promise<{ endsAt: string }> {
  return sendSession(request, reply, session, await newDevice(database, owner))
}

function invitationRoutes(app: FastifyInstance, { database }: Parts, takeAttempt: TakeAttempt): void {
  app.post('/invitation', async (request) => {
    const attempt = takeAttempt(request, { kind: 'invitation' }, null)
    const { invitation } = checkInvitation(parseUtf8Json(bodyBytes(request)))
    const invited = await attempt.compare(() => findInvited(database, invitation))
    if (invited === null) throw new AppError('invalid_invitation')
    attempt.succeed()
    return { email: invited.email }
  })

  app.post('/invitation/accept', async (request, reply) => {
    const attempt = takeAttempt(request, { kind: 'invitation' }, null)
    const { invitation, password } = checkAcceptance(parseUtf8Json(bodyBytes(request)))
    const invited = await attempt.compare(() => findInvited(database, invitation))
    if (invited === null) throw new AppError('invalid_invitation')
    attempt.succeed()
    const id = await acceptInvitation(database, invitation, password, request.id)
    if (id === null) throw new AppError('invalid_invitation')
    return sendTrusted(database, request, reply, await openSession(database, id), invited.email)
  })
}

function passwordRoute(
  app: FastifyInstance,
  { database }: Parts,
  { requireOperator }: Sessions,
  takeAttempt: TakeAttempt,
): void {
  app.post('/password', async (request, reply) => {
    const operator = await requireOperator(request)
    if (operator.kind === 'token') throw new AppError('forbidden')
    const { operatorId, name: email } = operator
    // The session proves the browser. Who has stolen it must not guess the password without a limit.
    const attempt = takeAttempt(request, { kind: 'password', email }, `operator ${operatorId}`)
    const { current, password } = checkNewPassword(parseUtf8Json(bodyBytes(request)))
    await attempt.compare(() => changePassword(database, operator, current, password))
    attempt.succeed()
    return sendTrusted(database, request, reply, await openSession(database, operatorId as bigint), email)
  })
}
