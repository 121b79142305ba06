/** POST /api/tracking — activity told by web pages, apps and servers. The one route open to other origins. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Account, findAccountByTrackingKey } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { RememberedAccounts, requireFreshIfEmpty, type SignedSource } from '../admit.ts'
import type { Admission } from '../flush.ts'
import { requireDatabase } from '../require-database.ts'
import { parseTrackingRequest, readTrackingEvents } from './payload.ts'
import { trackingSchema } from './route-schema.ts'

type Parts = Pick<SignedSource, 'database' | 'intake' | 'now'>

/** Browsers may remember the answer to a preflight for this long. */
const PREFLIGHT_MAX_AGE_SECONDS = 86_400
/** Client libraries send headers of their own, AnonymousId for one. */
const HEADER_NAMES = /^[A-Za-z0-9-]+(, ?[A-Za-z0-9-]+){0,20}$/

export function trackingRoutes(app: FastifyInstance, parts: Parts): void {
  app.options('/api/tracking', { onSend: allowOrigin }, async (request, reply) => {
    reply.header('access-control-allow-methods', 'POST')
    const asked = request.headers['access-control-request-headers'] ?? ''
    reply.header(
      'access-control-allow-headers',
      HEADER_NAMES.test(asked) ? asked : 'authorization, content-type',
    )
    reply.header('access-control-max-age', PREFLIGHT_MAX_AGE_SECONDS)
    return reply.code(204).send()
  })

  const accounts = new RememberedAccounts<string>(
    (key) => findAccountByTrackingKey(requireDatabase(parts).database, key),
    admissionOf,
  )
  app.post<{ Querystring: Record<string, unknown> }>(
    '/api/tracking',
    { schema: trackingSchema, onSend: allowOrigin },
    async (request) => {
      const { intake } = requireDatabase(parts)
      const tracking = parseTrackingRequest(bodyBytes(request))
      const key = tracking.writeKey ?? keyOutsideBody(request)
      const unknown = () => new AppError('unknown_tracking_key')
      if (key === null || !isStorableText(key)) throw unknown()
      const { accepted, rejected } = readTrackingEvents(tracking, key, parts.now())
      const receipt = await accounts.admit(key, unknown, async ({ admission }, isFresh) => {
        requireFreshIfEmpty(accepted, isFresh)
        return intake.receive(admission, accepted)
      })
      return { success: true, ...receipt, rejected }
    },
  )
}

function admissionOf({ id, trackingKey }: Account): Admission {
  return { accountId: id, source: 'tracking', credential: trackingKey }
}

/**
 * On every answer, refusals too. Named, not `*`: a beacon with a JSON body sends credentials, and then browsers accept
 * no wildcard.
 */
async function allowOrigin(request: FastifyRequest, reply: FastifyReply): Promise<void> {
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
  const key = request.query.writeKey ?? request.query.trackingKey ?? request.query.tracking_key
  return typeof key === 'string' ? key : null
}
