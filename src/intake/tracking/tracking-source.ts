import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { findAccountByTrackingKey } from '../../accounts/account.ts'
import type { Budget } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'
import { decodedBytes, receivedBytes } from '../../http/body.ts'
import { createClientKey } from '../../http/rate-limit.ts'
import { eventsRejected } from '../../observability/facts.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { cacheAccounts, type FindAdmitting, repeatWhileStale } from '../admit.ts'
import { ID_TOKEN } from '../delivery-counts.ts'
import type { SourceModule, SourceParts } from '../source.ts'
import { METRICS_PATHS, TRACKING_PATHS, trackingSchemas, typeOfCall } from './calls.ts'
import {
  idTokensOf,
  parseTrackingRequest,
  type Rejection,
  readStoredTrackingEvent,
  readTrackingEvents,
  type TrackingRequest,
  tokenOf,
  type Usage,
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
      findAccountByTrackingKey(parts.database.accounts, name),
    ),
    addresses: new Budgets(address, 'address'),
    claimed: new Budgets(key, 'tracking key'),
    proven: new Budgets(key, 'tracking key'),
    addressOf: createClientKey(),
  }
  const add = (url: string, handler: (request: TrackingCall) => Promise<unknown>) => {
    const schema = trackingSchemas[url]
    // The bodies of an address that has used up its budget are neither read nor parsed.
    const refuse = async (request: TrackingCall) => tracking.addresses.check(tracking.addressOf(request))
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
  /** Of the tracking keys, for unproven events and for proven ones, which a flood of unproven events does not block. */
  claimed: Budgets
  proven: Budgets
  addressOf: (request: FastifyRequest) => string
}

async function requireKnownCall(request: TrackingCall): Promise<void> {
  typeOfCall(request.params.call)
}

/** Charges the address for the decompressed size, too, even if the body turns out to be invalid. */
async function readBody({ addresses, addressOf }: TrackingParts, request: TrackingCall): Promise<Buffer> {
  const received = receivedBytes(request)
  const address = addressOf(request)
  addresses.take(address, { events: 0, bytes: received })
  const body = await decodedBytes(request)
  addresses.take(address, { events: 0, bytes: Math.max(0, body.length - received) })
  addresses.check(address)
  return body
}

/** Events of a request that are read, queued and flushed at a time. So few are in memory, and other senders take turns. */
const TURN_MAX_EVENTS = 500

async function receiveTracking(parts: TrackingParts, request: TrackingCall) {
  const { database, source, addresses, addressOf, claimed, proven } = parts
  database.requireConfigured()
  const body = await readBody(parts, request)
  const idToken = String(request.headers['x-line-id-token'] ?? '') || null
  const tracking = parseTrackingRequest(body, typeOfCall(request.params.call), idToken)
  addresses.take(addressOf(request), { events: tracking.events.length, bytes: 0 })
  const key = tracking.writeKey ?? keyOutsideBody(request)
  if (key === null || !isStorableText(key)) throw new AppError('unknown_tracking_key')
  // Before anything is stored. Forged tokens are not recognized yet.
  const budgets = tracking.events.map((event) => (tokenOf(event, idToken) === null ? claimed : proven))
  for (const budget of new Set(budgets)) budget.check(key)
  const receipt = { success: true, accepted: 0, duplicates: 0, rejected: [] as Rejection[] }
  for (let start = 0; start === 0 || start < tracking.events.length; start += TURN_MAX_EVENTS) {
    const turn = { ...tracking, start, events: tracking.events.slice(start, start + TURN_MAX_EVENTS) }
    const { rejected, ...stored } = await repeatWhileStale(storeTracking, parts, key, turn)
    receipt.accepted += stored.accepted
    receipt.duplicates += stored.duplicates
    receipt.rejected.push(...rejected)
  }
  const { rejected } = receipt
  if (rejected.length > 0) eventsRejected.publish({ source: source.name, events: rejected.length })
  // Client libraries log a 4xx response. After a 200 response, the events would be lost silently.
  if (rejected.length > 0 && rejected.length === tracking.events.length) {
    const details = rejected.map(({ index, message }) => ({ path: String(index), message }))
    throw new AppError('invalid_input', { message: 'None of the events could be read', details })
  }
  return receipt
}

async function storeTracking(
  isAgain: boolean,
  { intake, now, findAccount, idTokens, claimed, proven, counts }: TrackingParts,
  key: string,
  tracking: TrackingRequest,
) {
  const found = await findAccount(key, isAgain)
  if (found === null) throw new AppError('unknown_tracking_key')
  const { account, admission, isCached } = found
  const tokens = idTokensOf(tracking)
  const verdicts = await idTokens.verify(tokens, account.loginChannelIds)
  // A token that is invalid for the login channel of an outdated account may be valid for the current one.
  if ([...verdicts.values()].some((verdict) => !verdict.isValid && verdict.isAboutChannel)) {
    if (isCached) return 'stale'
    counts.add(account.id, ID_TOKEN, { refused: 1 }, 'last_refused_at')
  }
  const { accepted, rejected, usage } = await readTrackingEvents(tracking, key, now(), verdicts)
  // An empty request has no flush, which would check the cached account.
  if (accepted.length === 0 && isCached) return 'stale'
  if (accepted.length === 0 && rejected.length > 0) return { accepted: 0, duplicates: 0, rejected }
  if (!tracking.isCharged) {
    claimed.take(key, usage.claimed)
    proven.take(key, usage.proven)
    tracking.isCharged = true
  }
  const reception = await intake.receive(admission, accepted)
  if (reception === 'stale') return 'stale'
  if (usage.proven.events > 0) counts.add(account.id, ID_TOKEN, {}, 'last_at')
  return { ...reception, rejected }
}

/** Segment's browser library sends these without a tracking key. */
async function discardMetrics(parts: TrackingParts, request: TrackingCall) {
  await readBody(parts, request)
  parts.addresses.take(parts.addressOf(request), { events: 1, bytes: 0 })
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

// Limits the events and bytes per minute of each client address and each tracking key. The key is public, so without limits anybody
// could fill the disk and keep the database busy. An address is charged for everything that it sends. A key is charged only for events
// that are stored. Otherwise anybody could use up a site's budget with invalid requests.

const WINDOW_MS = 60_000
/** About 20 MiB. Beyond it, the least recently used window is dropped. */
const WINDOWS_MAX = 100_000

interface Window extends Usage {
  startedAtMs: number
}

/** Fixed windows of a minute, in this process. A request that has more events than are left also uses up the next windows. */
class Budgets {
  readonly #windows = new LRUCache<string, Window>({ max: WINDOWS_MAX })
  readonly #budget: Budget
  readonly #sender: string

  /** @param sender completes the message "Too many tracking events from this …" */
  constructor(budget: Budget, sender: string) {
    this.#budget = budget
    this.#sender = sender
  }

  /** Throws `tracking_budget_exceeded` if nothing is left. Unknown senders take no memory, so they do not evict others. */
  check(sender: string): void {
    const window = this.#windowOf(sender)
    if (window === undefined) return
    const { eventsPerMinute, bytesPerMinute } = this.#budget
    const usedWindows = Math.floor(Math.max(window.events / eventsPerMinute, window.bytes / bytesPerMinute))
    if (usedWindows === 0) return
    const leftMs = window.startedAtMs + usedWindows * WINDOW_MS - performance.now()
    throw new AppError('tracking_budget_exceeded', {
      message: `Too many tracking events from this ${this.#sender}: ${eventsPerMinute} events and ${bytesPerMinute} bytes per minute are accepted`,
      retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)),
    })
  }

  take(sender: string, { events, bytes }: Usage): void {
    const window = this.#windowOf(sender) ?? { startedAtMs: performance.now(), events: 0, bytes: 0 }
    window.events += events
    window.bytes += bytes
    this.#windows.set(sender, window)
  }

  #windowOf(sender: string): Window | undefined {
    const window = this.#windows.get(sender)
    // A monotonic clock: the time of day can be set back.
    const passed = Math.floor((performance.now() - (window?.startedAtMs ?? 0)) / WINDOW_MS)
    if (window === undefined || passed === 0) return window
    window.startedAtMs += passed * WINDOW_MS
    window.events = Math.max(0, window.events - passed * this.#budget.eventsPerMinute)
    window.bytes = Math.max(0, window.bytes - passed * this.#budget.bytesPerMinute)
    return window
  }
}
