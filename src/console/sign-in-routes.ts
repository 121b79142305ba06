/** How operators sign in and out, accept an invitation and change their password. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Secret } from '../config/secret.ts'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { createClientKey, MemoryStore } from '../http/rate-limit.ts'
import { Type } from '../http/typebox.ts'
import { checker, StorableText } from '../http/validate.ts'
import { objectOf } from '../operations/fields.ts'
import { PASSWORD_MAX_LENGTH } from '../operators/passwords.ts'
import { openSession } from '../operators/sessions.ts'
import {
  acceptInvitation,
  changePassword,
  findDevice,
  findInvited,
  hasPasswords,
  signIn,
} from '../operators/sign-in.ts'
import { type ConsoleParts, checkFields } from './parts.ts'
import { deviceCookieOf, endSessionOf, type Sessions, sendSession } from './session.ts'

const Password = StorableText({ maxLength: PASSWORD_MAX_LENGTH })
const checkSignIn = checker(
  Type.Union([
    objectOf({ token: Type.String({ maxLength: 1_024 }) }),
    objectOf({ email: StorableText({ maxLength: 254 }), password: Password }),
  ]),
)
const Invitation = Type.String({ maxLength: 64 })
const checkInvitation = checkFields({ invitation: Invitation })
const checkAcceptance = checkFields({ invitation: Invitation, password: Password })
const checkNewPassword = checkFields({ current: Password, password: Password })

type Parts = Pick<ConsoleParts, 'token' | 'database'>

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
      return sendSession(database, request, reply, await openSession(database, token), token)
    }
    const email = given.email.trim().toLowerCase()
    const device = await findDevice(database, deviceCookieOf(request), email)
    const attempt = takeAttempt(request, { kind: 'password', email }, device)
    const session = await attempt.compare(() => signIn(database, email, given.password, device !== null))
    if (session === null) throw new AppError('wrong_password')
    attempt.succeed()
    return sendSession(database, request, reply, session, email)
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

function invitationRoutes(app: FastifyInstance, { database }: Parts, takeAttempt: TakeAttempt): void {
  app.post('/invitation', async (request) => {
    const attempt = takeAttempt(request, { kind: 'invitation' }, null)
    const { invitation } = checkInvitation(parseUtf8Json(bodyBytes(request)))
    const invited = await attempt.compare(() => findInvited(database, invitation))
    if (invited === null) throw new AppError('invalid_invitation')
    attempt.succeed()
    return { email: invited.name }
  })

  app.post('/invitation/accept', async (request, reply) => {
    const attempt = takeAttempt(request, { kind: 'invitation' }, null)
    const { invitation, password } = checkAcceptance(parseUtf8Json(bodyBytes(request)))
    const invited = await attempt.compare(() => findInvited(database, invitation))
    if (invited === null) throw new AppError('invalid_invitation')
    attempt.succeed()
    const id = await acceptInvitation(database, invitation, password, request.id)
    if (id === null) throw new AppError('invalid_invitation')
    return sendSession(database, request, reply, await openSession(database, id), invited.name)
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
    return sendSession(database, request, reply, await openSession(database, operatorId as bigint), email)
  })
}

// Limits wrong tokens and passwords: of each browser that has signed in before, and of all others by address, by operator and in total.

/** Wrong attempts per window of one browser, of one address, or for one operator from unknown browsers. People mistype a few times. */
const WRONG_PER_KEY = 10
const WINDOW_MS = 15 * 60_000
/** Wrong attempts of all unknown browsers per minute. A password takes up to 0.5 s of a core: 30 s of a core per minute. */
const WRONG_IN_TOTAL = 60
const TOTAL_WINDOW_MS = 60_000

/** Nothing was compared: too many hashes wait, or the database does not respond. */
const NOT_COMPARED: readonly string[] = ['sign_in_limited', 'unavailable', 'busy', 'internal']

interface Attempt {
  /** Runs the comparison. An attempt that could not be compared does not count. */
  compare: <T>(work: () => Promise<T>) => Promise<T>
  succeed: () => void
}

/** What is guessed. The shared limits are separate, so guesses of tokens lock out nobody who has a password. */
type Guessed =
  | { kind: 'token' }
  /** in lower case; whether the operator exists makes no difference */
  | { kind: 'password'; email: string }
  /** 32 random bytes, which nobody guesses: limited by address alone */
  | { kind: 'invitation' }

/** @param device the proven browser or session, which has a limit of its own; null: unknown. Throws `sign_in_limited`. */
type TakeAttempt = (request: FastifyRequest, guessed: Guessed, device: string | null) => Attempt

type Count = { store: MemoryStore; key: string; max: number }

/** Each attempt counts before it is compared, so parallel attempts cannot exceed the limit. */
function limitSignIns(): TakeAttempt {
  const devices = new MemoryStore(WINDOW_MS)
  const addresses = new MemoryStore(WINDOW_MS)
  const operators = new MemoryStore(WINDOW_MS)
  const total = new MemoryStore(TOTAL_WINDOW_MS)
  const keyOf = createClientKey()
  const countsOf = (request: FastifyRequest, guessed: Guessed, device: string | null): Count[] => {
    if (device !== null) return [{ store: devices, key: device, max: WRONG_PER_KEY }]
    const counts = [{ store: addresses, key: keyOf(request), max: WRONG_PER_KEY }]
    if (guessed.kind === 'password') counts.push({ store: operators, key: guessed.email, max: WRONG_PER_KEY })
    if (guessed.kind !== 'invitation') counts.push({ store: total, key: guessed.kind, max: WRONG_IN_TOTAL })
    return counts
  }
  return (request, guessed, device) => {
    const counted: Count[] = []
    const giveBack = () => {
      for (const { store, key } of counted) store.giveBack(key)
    }
    for (const count of countsOf(request, guessed, device)) {
      const { requests, leftMs } = count.store.count(count.key)
      counted.push(count)
      if (requests <= count.max) continue
      giveBack()
      throw limited(leftMs)
    }
    return {
      compare: (work) =>
        work().catch((error: unknown) => {
          if (!(error instanceof AppError) || NOT_COMPARED.includes(error.code)) giveBack()
          throw error
        }),
      succeed: giveBack,
    }
  }
}

const limited = (leftMs: number) =>
  new AppError('sign_in_limited', { retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)) })
