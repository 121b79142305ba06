import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { findAccountByTrackingKey } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { decodedBytes, receivedBytes } from '../../http/body.ts'
import { createClientKey } from '../../http/rate-limit.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { cacheAccounts, type FindAdmitting, repeatWhileStale } from '../admit.ts'
import { ID_TOKEN } from '../delivery-counts.ts'
import type { SourceModule, SourceParts } from '../source.ts'
import { METRICS_PATHS, TRACKING_PATHS, trackingSchemas, typeOfCall } from './calls.ts'
import { createProver, haveTokens } from './id-token.ts'
import { Budgets, type GiveBack, KeyBudgets } from './tracking-budget.ts'
import {
  parseTrackingRequest,
  type Rejection,
  readStoredTrackingEvent,
  readTrackingEvents,
  type TrackingRequest,
} from './tracking-payload.ts'

export const trackingSource: SourceModule = {
  name: 'tracking',
  isProven: false,
  // Anybody can send tracking events, so they get a quarter of the memory of other sources, and one connection. The worst body takes
  // 24 times its size when it is parsed (measured: a list of {"99":0}), so few bytes of bodies are held.
  share: {
    flushConnections: 1,
    maxEvents: 5_000,
    maxPayload: 16 * 1024 * 1024,
    maxBodyBytes: 16 * 1024 * 1024,
  },
  addRoutes: addTrackingRoutes,
  isOwnActWithoutContent: () => true,
  reparse: (content, occurredAtMs, _account, key) => readStoredTrackingEvent(content, occurredAtMs, key),
}

// POST /api/tracking, and the paths that client libraries append: activity that web pages, apps and servers report. These are the
// only routes that are open to other origins.

/** Browsers may cache the response to a preflight request for this long. */
const PREFLIGHT_MAX_AGE_SECONDS = 86_400
/** Client libraries send headers of their own, such as AnonymousId. */
const HEADER_NAMES = /^[A-Za-z0-9-]+(, ?[A-Za-z0-9-]+){0,20}$/

interface CallParameters {
  Params: { call?: string }
  Querystring: Record<string, unknown>
}
type TrackingCall = FastifyRequest<CallParameters>

function addTrackingRoutes(app: FastifyInstance, parts: SourceParts): void {
  const { address, key } = parts.trackingBudgets
  const tracking: TrackingParts = {
    ...parts,
    findAccount: cacheAccounts(parts.source, (name: string) =>
      findAccountByTrackingKey(parts.database, name),
    ),
    addresses: new Budgets(address, 'address'),
    keys: new KeyBudgets(key),
    addressOf: createClientKey(),
  }
  const add = (url: string, handler: (request: TrackingCall) => Promise<unknown>) => {
    const schema = trackingSchemas[url]
    const refuse = async (request: TrackingCall) => refuseBeforeBody(tracking, request)
    app.options<CallParameters>(url, { onSend: allowOrigin, onRequest: requireKnownCall }, respondToPreflight)
    app.post<CallParameters>(
      url,
      {
        ...(schema && { schema }),
        config: { bodies: parts.bodies },
        onSend: allowOrigin,
        onRequest: [requireKnownCall, refuse],
      },
      handler,
    )
  }
  for (const url of TRACKING_PATHS) add(url, (request) => receiveTracking(tracking, request))
  for (const url of METRICS_PATHS) add(url, (request) => discardMetrics(tracking, request))
}

interface TrackingParts extends SourceParts {
  findAccount: FindAdmitting<string>
  addresses: Budgets
  keys: KeyBudgets
  addressOf: (request: FastifyRequest) => string
}

async function requireKnownCall(request: TrackingCall): Promise<void> {
  typeOfCall(request.params.call)
}

/** The bodies of an address that has used up its budget are neither read nor parsed. */
function refuseBeforeBody({ addresses, addressOf }: TrackingParts, request: FastifyRequest): void {
  addresses.check(addressOf(request), 1, Number(request.headers['content-length'] ?? 0) || 0)
}

/** Charges the address for the body as received, and for its decompressed size, even if the body turns out to be invalid. */
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
  return repeatWhileStale(storeTracking, parts, charged)
}

/** A request whose address has been charged. The tracking key is charged once, however often the account changes. */
interface Charged {
  tracking: TrackingRequest
  key: string
  prove: ReturnType<typeof createProver>
  isClaimed: boolean
  giveBack: GiveBack | null
}

async function storeTracking(
  isAgain: boolean,
  { intake, now, findAccount, keys, counts }: TrackingParts,
  charged: Charged,
) {
  const { tracking, key, prove, isClaimed } = charged
  const found = await findAccount(key, isAgain)
  if (found === null) throw new AppError('unknown_tracking_key')
  const { account, admission, isCached } = found
  // Only for existing keys: unknown keys would evict the budgets of others.
  if (charged.giveBack === null && isClaimed) keys.checkClaimed(key)
  const proofs = await prove(account.loginChannelIds)
  if (proofs.dependOnAccount && isCached) return 'stale'
  if (proofs.dependOnAccount) counts.addRefused(account.id, ID_TOKEN)
  const { accepted, rejected, claimed, proven } = await readTrackingEvents(tracking, key, now(), proofs)
  // An empty request has no flush, which would check the cached account.
  if (accepted.length === 0 && isCached) return 'stale'
  if (accepted.length === 0 && rejected.length > 0) throw unreadable(rejected)
  charged.giveBack ??= keys.take(key, claimed, proven)
  const { giveBack } = charged
  const reception = await intake.receive(admission, accepted).catch((error) => {
    giveBack(1)
    throw error
  })
  if (reception === 'stale') return 'stale'
  if (proven.events > 0) counts.addProof(account.id)
  if (reception.duplicates > 0) giveBack(reception.duplicates / accepted.length)
  return { success: true, ...reception, rejected }
}

/** The ID token for all events that have none of their own. */
function idTokenOf({ headers }: TrackingCall): string | null {
  return String(headers['x-line-id-token'] ?? '') || null
}

/** Client libraries log a 4xx response. After a 200 response, the events would be lost silently. */
function unreadable(rejected: Rejection[]): AppError {
  const details = rejected.map(({ index, message }) => ({ path: String(index), message }))
  return new AppError('invalid_input', { message: 'None of the events could be read', details })
}

/** Segment's browser library sends these without a tracking key. The address is charged, and nothing is stored. */
async function discardMetrics(parts: TrackingParts, request: TrackingCall) {
  await readBody(parts, request)
  parts.addresses.take(parts.addressOf(request), 1, 0)
  return { success: true, accepted: 0, duplicates: 0, rejected: [] }
}

async function respondToPreflight(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
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
 * Applies to every response, including errors. The header contains the origin instead of `*`, because a beacon with a JSON body sends
 * credentials, and browsers then reject the wildcard.
 */
async function allowOrigin(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  reply.header('vary', 'origin')
  if (request.headers.origin === undefined) return
  reply.header('access-control-allow-origin', request.headers.origin)
  reply.header('access-control-allow-credentials', 'true')
}

/** Most libraries send the key as the user name of Basic authentication, Jitsu's in a header, and beacons in the query. */
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

/** Removes the password, or the secret of Jitsu's `key:secret`. */
const keyOf = (credentials: string) => credentials.split(':')[0] ?? null
