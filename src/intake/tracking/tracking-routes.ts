/**
 * POST /api/tracking: activity that web pages, apps and servers report. The one route that is open to other origins. It also
 * answers on the paths that client libraries append.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { findAccountByTrackingKey } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { decodedBytes, receivedBytes } from '../../http/body.ts'
import { createClientKey } from '../../http/rate-limit-counter.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { AdmittingAccounts, repeatWhileStale } from '../admit.ts'
import type { SourceParts } from '../source.ts'
import { METRICS_PATHS, TRACKING_PATHS, typeOfCall } from './calls.ts'
import { createProver, haveTokens } from './id-token.ts'
import { Budgets, type GiveBack, KeyBudgets } from './tracking-budget.ts'
import {
  parseTrackingRequest,
  type Rejection,
  readTrackingEvents,
  type TrackingRequest,
} from './tracking-payload.ts'
import { trackingSchemas } from './tracking-route-schema.ts'

/** How long browsers may cache the answer to a preflight request. */
const PREFLIGHT_MAX_AGE_SECONDS = 86_400
/** Client libraries send headers of their own, such as AnonymousId. */
const HEADER_NAMES = /^[A-Za-z0-9-]+(, ?[A-Za-z0-9-]+){0,20}$/

interface CallParameters {
  Params: { call?: string }
  Querystring: Record<string, unknown>
}
type TrackingCall = FastifyRequest<CallParameters>

export function addTrackingRoutes(app: FastifyInstance, parts: SourceParts): void {
  const { address, key } = parts.trackingBudgets
  const tracking: TrackingParts = {
    ...parts,
    accounts: new AdmittingAccounts<string>(parts.source, (name) =>
      findAccountByTrackingKey(parts.database, name),
    ),
    addresses: new Budgets(address, 'address'),
    keys: new KeyBudgets(key),
    addressOf: createClientKey(),
  }
  const add = (url: string, answer: (request: TrackingCall) => Promise<unknown>) => {
    const schema = trackingSchemas[url]
    const refuse = async (request: TrackingCall) => refuseBeforeBody(tracking, request)
    app.options<CallParameters>(url, { onSend: allowOrigin, onRequest: requireKnownCall }, answerPreflight)
    app.post<CallParameters>(
      url,
      {
        ...(schema && { schema }),
        config: { bodies: parts.bodies },
        onSend: allowOrigin,
        onRequest: [requireKnownCall, refuse],
      },
      answer,
    )
  }
  for (const url of TRACKING_PATHS) add(url, (request) => receiveTracking(tracking, request))
  for (const url of METRICS_PATHS) add(url, (request) => discardMetrics(tracking, request))
}

interface TrackingParts extends SourceParts {
  accounts: AdmittingAccounts<string>
  addresses: Budgets
  keys: KeyBudgets
  addressOf: (request: FastifyRequest) => string
}

async function requireKnownCall(request: TrackingCall): Promise<void> {
  typeOfCall(request.params.call)
}

/** An address that has used up its budget costs neither the reading nor the parsing of its bodies. */
function refuseBeforeBody({ addresses, addressOf }: TrackingParts, request: FastifyRequest): void {
  addresses.check(addressOf(request), 1, Number(request.headers['content-length'] ?? 0) || 0)
}

/** Charges the address for the body as it came, and for what it expands to: also if it cannot be read. */
async function readBody({ addresses, addressOf }: TrackingParts, request: TrackingCall): Promise<Buffer> {
  const received = receivedBytes(request)
  addresses.take(addressOf(request), 0, received)
  const body = await decodedBytes(request)
  addresses.spend(addressOf(request), Math.max(0, body.length - received))
  return body
}

async function receiveTracking(parts: TrackingParts, request: TrackingCall) {
  const { database, addresses, addressOf, idTokens } = parts
  database.requireConfigured()
  const body = await readBody(parts, request)
  const tracking = parseTrackingRequest(body, typeOfCall(request.params.call))
  addresses.take(addressOf(request), tracking.events.length, 0)
  const key = tracking.writeKey ?? keyOutsideBody(request)
  if (key === null || !isStorableText(key)) throw new AppError('unknown_tracking_key')
  const prove = createProver(idTokens, tracking.events, idTokenOf(request))
  const isClaimed = !haveTokens(tracking.events, idTokenOf(request))
  const charged: Charged = { tracking, key, prove, isClaimed, giveBack: null }
  return repeatWhileStale((isAgain) => storeTracking(parts, charged, isAgain))
}

/** A request whose address has paid. The tracking key pays once, however often its account changes meanwhile. */
interface Charged {
  tracking: TrackingRequest
  key: string
  prove: ReturnType<typeof createProver>
  isClaimed: boolean
  giveBack: GiveBack | null
}

async function storeTracking(
  { intake, now, accounts, keys }: TrackingParts,
  charged: Charged,
  isAgain: boolean,
) {
  const { tracking, key, prove, isClaimed } = charged
  const found = await accounts.find(key, isAgain)
  if (found === null) throw new AppError('unknown_tracking_key')
  const { account, admission, isCached } = found
  // After the key was found, because unknown keys would displace the budgets of others from memory.
  if (charged.giveBack === null && isClaimed) keys.checkClaimed(key)
  const proofs = await prove(account.loginChannelId)
  if (proofs.dependOnAccount && isCached) return 'stale'
  const { accepted, rejected, claimed, proven } = await readTrackingEvents(tracking, key, now(), proofs)
  // Nothing is stored for an empty request, so no flush would compare a cached account.
  if (accepted.length === 0 && isCached) return 'stale'
  if (accepted.length === 0 && rejected.length > 0) throw unreadable(rejected)
  charged.giveBack ??= keys.take(key, claimed, proven)
  const { giveBack } = charged
  const reception = await intake.receive(admission, accepted).catch((error) => {
    giveBack(1)
    throw error
  })
  if (reception === 'stale') return 'stale'
  if (reception.duplicates > 0) giveBack(reception.duplicates / accepted.length)
  return { success: true, ...reception, rejected }
}

/** The ID token of LINE for all events that have none of their own. */
function idTokenOf({ headers }: TrackingCall): string | null {
  return String(headers['x-line-id-token'] ?? '') || null
}

/** The client library logs an error of 4xx. It would take 200 for success, and every event would be lost silently. */
function unreadable(rejected: Rejection[]): AppError {
  const details = rejected.map(({ index, message }) => ({ path: String(index), message }))
  return new AppError('invalid_input', { message: 'None of the events could be read', details })
}

/** Segment's browser library sends these without a tracking key. They cost their address its budget, and nothing is stored. */
async function discardMetrics(parts: TrackingParts, request: TrackingCall) {
  await readBody(parts, request)
  parts.addresses.take(parts.addressOf(request), 1, 0)
  return { success: true, accepted: 0, duplicates: 0, rejected: [] }
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

/** The user name of Basic authentication, which most libraries send, Jitsu's header, or a query parameter, for beacons. */
function keyOutsideBody(request: TrackingCall): string | null {
  const [scheme, credentials] = request.headers.authorization?.split(' ') ?? []
  if (scheme?.toLowerCase() === 'basic' && credentials) {
    return keyOf(Buffer.from(credentials, 'base64').toString('utf8'))
  }
  const header = request.headers['x-write-key']
  if (typeof header === 'string' && header !== '') return keyOf(header)
  const key = request.query.writeKey ?? request.query.trackingKey ?? request.query.tracking_key
  return typeof key === 'string' ? key : null
}

/** Without the password, or the secret of Jitsu's `key:secret`. */
const keyOf = (credentials: string) => credentials.split(':')[0] ?? null
