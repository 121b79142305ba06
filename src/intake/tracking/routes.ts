/** POST /api/tracking — activity told by web pages, apps and servers. The one route open to other origins. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Account, findAccountByTrackingKey } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import type { Database } from '../../postgres/database.ts'
import { isStorableText } from '../../postgres/storable.ts'
import type { Intake } from '../receive.ts'
import { requireDatabase } from '../require-database.ts'
import { parseTrackingRequest, readTrackingEvents } from './payload.ts'

interface Parts {
  database: Database | null
  intake: Intake | null
  now: () => number
}

/** Browsers may remember the answer to a preflight for this long. */
const PREFLIGHT_MAX_AGE_SECONDS = 86_400

export function trackingRoutes(app: FastifyInstance, parts: Parts): void {
  app.options('/api/tracking', async (request, reply) => {
    allowOrigin(request, reply)
    reply.header('access-control-allow-methods', 'POST')
    reply.header('access-control-allow-headers', 'authorization, content-type')
    reply.header('access-control-max-age', PREFLIGHT_MAX_AGE_SECONDS)
    return reply.code(204).send()
  })

  app.post<{ Querystring: Record<string, unknown> }>('/api/tracking', async (request, reply) => {
    allowOrigin(request, reply)
    const { database, intake } = requireDatabase(parts)
    const tracking = parseTrackingRequest(bodyBytes(request))
    const account = await accountOf(database, tracking.writeKey ?? keyOutsideBody(request))
    const { accepted, rejected } = readTrackingEvents(tracking, parts.now())
    const receipt = await intake.receive(account.id, accepted)
    return { success: true, ...receipt, rejected }
  })
}

/** Named, not `*`: a beacon with a JSON body sends credentials, and then browsers accept no wildcard. */
function allowOrigin(request: FastifyRequest, reply: FastifyReply): void {
  reply.header('vary', 'origin')
  if (request.headers.origin === undefined) return
  reply.header('access-control-allow-origin', request.headers.origin)
  reply.header('access-control-allow-credentials', 'true')
}

/** As the user name of Basic authentication, which Segment's libraries send, or in the query, for beacons. */
function keyOutsideBody(request: FastifyRequest<{ Querystring: Record<string, unknown> }>): string | null {
  const [scheme, credentials] = request.headers.authorization?.split(' ') ?? []
  if (scheme?.toLowerCase() === 'basic' && credentials) {
    return Buffer.from(credentials, 'base64').toString('utf8').split(':')[0] ?? null
  }
  const key = request.query.writeKey ?? request.query.tracking_key
  return typeof key === 'string' ? key : null
}

async function accountOf(database: Database, trackingKey: string | null): Promise<Account> {
  const known = trackingKey !== null && isStorableText(trackingKey)
  const account = known ? await findAccountByTrackingKey(database, trackingKey) : null
  if (account === null) throw new AppError('unknown_tracking_key')
  return account
}
