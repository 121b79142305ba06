/** POST /api/tracking: activity that web pages, apps and servers report. The one route that is open to other origins. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { findAccountByTrackingKey } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { decodedBytes } from '../../http/body.ts'
import { createClientKey } from '../../http/rate-limit-counter.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { AdmittingAccounts } from '../admit.ts'
import type { SourceParts } from '../source.ts'
import { Budgets } from './budget.ts'
import { createProver } from './id-token.ts'
import { parseTrackingRequest, readTrackingEvents } from './payload.ts'
import { trackingSchema } from './route-schema.ts'

/** How long browsers may cache the answer to a preflight request. */
const PREFLIGHT_MAX_AGE_SECONDS = 86_400
/** Client libraries send headers of their own, such as AnonymousId. */
const HEADER_NAMES = /^[A-Za-z0-9-]+(, ?[A-Za-z0-9-]+){0,20}$/

type TrackingCall = FastifyRequest<{ Querystring: Record<string, unknown> }>

export function addTrackingRoutes(app: FastifyInstance, parts: SourceParts): void {
  const { address, key } = parts.trackingBudgets
  const tracking: TrackingParts = {
    ...parts,
    accounts: new AdmittingAccounts<string>(parts.source, (name) =>
      findAccountByTrackingKey(parts.database, name),
    ),
    addresses: new Budgets(address, 'address'),
    keys: new Budgets(key, 'tracking key'),
    addressOf: createClientKey(),
  }
  app.options('/api/tracking', { onSend: allowOrigin }, answerPreflight)
  app.post(
    '/api/tracking',
    {
      schema: trackingSchema,
      onSend: allowOrigin,
      onRequest: async (request) => refuseBeforeBody(tracking, request),
    },
    (request: TrackingCall) => receiveTracking(tracking, request),
  )
}

interface TrackingParts extends SourceParts {
  accounts: AdmittingAccounts<string>
  addresses: Budgets
  keys: Budgets
  addressOf: (request: FastifyRequest) => string
}

/** An address that has used up its budget costs neither the reading nor the parsing of its bodies. */
function refuseBeforeBody({ addresses, addressOf }: TrackingParts, request: FastifyRequest): void {
  addresses.check(addressOf(request), 1, Number(request.headers['content-length'] ?? 0) || 0)
}

async function receiveTracking(
  { database, intake, now, accounts, addresses, keys, addressOf, idTokens }: TrackingParts,
  request: TrackingCall,
) {
  database.requireConfigured()
  const body = await decodedBytes(request)
  addresses.take(addressOf(request), 0, body.length)
  const tracking = parseTrackingRequest(body)
  addresses.take(addressOf(request), tracking.events.length, 0)
  const key = tracking.writeKey ?? keyOutsideBody(request)
  if (key === null || !isStorableText(key)) throw new AppError('unknown_tracking_key')
  const prove = createProver(idTokens, tracking.events, idTokenOf(request))
  let isCharged = false
  for await (const { account, admission, isCached } of accounts.candidates(key)) {
    // After the key was found, because unknown keys would displace the budgets of others from memory.
    if (!isCharged) keys.take(key, tracking.events.length, body.length)
    isCharged = true
    const proofs = await prove(account.loginChannelId)
    if (proofs.dependOnAccount && isCached) continue
    const { accepted, rejected } = await readTrackingEvents(tracking, key, now(), proofs)
    // Nothing is stored for an empty request, so no flush would compare a cached account.
    if (accepted.length === 0 && isCached) continue
    const reception = await intake.receive(admission, accepted)
    if (reception === 'stale') continue
    if (reception === 'overloaded') throw new AppError('unavailable', { retryAfterSeconds: 1 })
    return { success: true, ...reception, rejected }
  }
  throw new AppError('unknown_tracking_key')
}

/** The ID token of LINE for all events that have none of their own. */
function idTokenOf({ headers }: TrackingCall): string | null {
  return String(headers['x-line-id-token'] ?? '') || null
}

async function answerPreflight(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const requested = request.headers['access-control-request-headers'] ?? ''
  return reply
    .header('access-control-allow-methods', 'POST')
    .header(
      'access-control-allow-headers',
      HEADER_NAMES.test(requested) ? requested : 'authorization, content-type',
    )
    .header('access-control-max-age', PREFLIGHT_MAX_AGE_SECONDS)
    .code(204)
    .send()
}

/**
 * On every answer, errors included. The origin is named instead of `*`: a beacon with a JSON body sends credentials, and then
 * browsers accept no wildcard.
 */
async function allowOrigin(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  reply.header('vary', 'origin')
  if (request.headers.origin === undefined) return
  reply.header('access-control-allow-origin', request.headers.origin)
  reply.header('access-control-allow-credentials', 'true')
}

/** The user name of Basic authentication, which Segment's libraries send, or a query parameter, for beacons. */
function keyOutsideBody(request: TrackingCall): string | null {
  const [scheme, credentials] = request.headers.authorization?.split(' ') ?? []
  if (scheme?.toLowerCase() === 'basic' && credentials) {
    return Buffer.from(credentials, 'base64').toString('utf8').split(':')[0] ?? null
  }
  const key = request.query.writeKey ?? request.query.trackingKey ?? request.query.tracking_key
  return typeof key === 'string' ? key : null
}
