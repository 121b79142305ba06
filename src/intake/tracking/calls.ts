/** The calls of Segment's HTTP API: their paths and the types of their events. */
import type { FastifySchema } from 'fastify'
import { AppError } from '../../errors.ts'
import { EXAMPLE_USER_ID, failures, INTAKE_FAILURES, success, TAGS } from '../../http/schema-parts.ts'
import { Type } from '../../http/typebox.ts'

/**
 * Client libraries append a path to the configured URL: Segment and RudderStack `/v1/track` or `/v1/batch`, Segment's browser library
 * `/t`, Jitsu `/api/s/track` in browsers and `/api/s/s2s/track` on servers. RudderStack's beacons go to `/beacon/v1/batch`, and
 * batches of Segment's library for Java to `/v1/import/`.
 */
export const TRACKING_PATHS = [
  '/api/tracking',
  '/api/tracking/:call',
  '/api/tracking/v1/:call',
  '/api/tracking/api/s/:call',
  '/api/tracking/api/s/s2s/:call',
  '/api/tracking/beacon/v1/batch',
  '/api/tracking/v1/import/',
] as const

/** Segment's browser library reports counters about itself here, without an account or a person. */
export const METRICS_PATHS = ['/api/tracking/m', '/api/tracking/v1/m'] as const

/** Segment's types of events. */
export const EVENT_TYPES = ['track', 'identify', 'page', 'screen', 'group', 'alias']

/** The event type of each call, which is its name or its first letter. In a batch (null), each event has its own type. */
const TYPES_BY_CALL = new Map<string, string | null>([
  ...EVENT_TYPES.map((type) => [type, type] as const),
  ['batch', null] as const,
  ['import', null] as const,
  // Jitsu's call for an event of any type.
  ['event', null] as const,
  ...EVENT_TYPES.map((type) => [type.charAt(0), type] as const),
  ['b', null],
])

const TRACKING_CALLS = [...TYPES_BY_CALL.keys()]

/** Throws `unknown_route` for a call that does not exist. */
export function typeOfCall(call: string | undefined): string | null {
  if (call === undefined) return null
  const type = TYPES_BY_CALL.get(call)
  if (type === undefined) throw new AppError('unknown_route')
  return type
}

/** The first match counts: a group call also has traits, and a track call may have a groupId. */
const TYPES_BY_FIELD = [
  ['event', 'track'],
  ['previousId', 'alias'],
  ['groupId', 'group'],
  ['traits', 'identify'],
  ['name', 'page'],
  ['category', 'page'],
] as const

/** Returns the event's type, or the type that its fields imply, or null. */
export function typeOfEvent(event: Record<string, unknown>): string | null {
  if (typeof event.type === 'string' && event.type !== '') return event.type
  const implied = TYPES_BY_FIELD.find(([field]) => Boolean(event[field]))
  return implied?.[1] ?? null
}

const trackingSchema: FastifySchema = {
  operationId: 'receiveTracking',
  summary: 'Receive tracking events',
  description: `Accepts the HTTP shape of Segment: one event, an array, or a \`batch\`. Any origin may call it.
The tracking key of the account is \`writeKey\` in the body, the user name of Basic authentication, the header \`X-Write-Key\`,
or \`writeKey\` in the query. An event without a \`type\` has the type that its fields imply.
Limits: 32 KiB per event, and a budget of events and bytes per minute for each client address and each tracking key. Once it is used
up, whole requests get 429 and none of their events is stored.

An ID token of LINE, in \`context.idToken\` of an event or in the header \`X-Line-Id-Token\`, proves the event's person, who then
becomes a member. A wrong token rejects its event.`,
  tags: [TAGS.intake],
  'x-response-headers': ['Vary', 'Access-Control-Allow-Origin', 'Access-Control-Allow-Credentials'],
  headers: Type.Object({
    'x-line-id-token': Type.Optional(
      Type.String({ description: 'ID token of LINE for all events that contain none.' }),
    ),
  }),
  querystring: Type.Object({
    writeKey: Type.Optional(Type.String({ description: 'Tracking key, if the body does not contain it.' })),
  }),
  body: {
    content: {
      'application/json': {
        schema: {
          description: 'One event, an array of events, or a batch.',
          examples: [
            {
              writeKey: '{trackingKey}',
              batch: [
                { type: 'page', userId: EXAMPLE_USER_ID, messageId: 'page-1', properties: { path: '/menu' } },
              ],
            },
          ],
        },
      },
      'text/plain': {
        schema: Type.String({ description: 'The same JSON, as navigator.sendBeacon sends it.' }),
      },
    },
  },
  response: {
    ...success('TrackingReceipt', 'Accepted events are committed to disk. `rejected` lists the others.'),
    ...failures({
      ...INTAKE_FAILURES,
      400: 'The tracking key is unknown or missing, or no event could be read.',
    }),
  },
}

const CALL_PATH = '/api/tracking/v1/:call'

/** The paths that are not in the document by themselves. */
const aliases = (paths: readonly string[]) =>
  paths
    .filter((path) => path !== '/api/tracking' && path !== CALL_PATH)
    .map((path) => `\`${path.replace(':call', '{call}')}\``)
    .join(', ')

const callSchema: FastifySchema = {
  ...trackingSchema,
  operationId: 'receiveTrackingCall',
  summary: 'Receive tracking events of one type, or a batch',
  description: `The same as \`POST /api/tracking\`, on the paths of Segment's HTTP API. The path determines the type of a single event.
These paths are the same for other client libraries: ${aliases(TRACKING_PATHS)}.
Segment's browser library reports counters about itself to ${aliases(METRICS_PATHS)}. They are discarded.`,
  params: Type.Object({
    call: Type.Enum(TRACKING_CALLS, {
      description: 'The type of the event or its first letter, or a batch.',
    }),
  }),
  response: { ...(trackingSchema.response as object), ...failures({ 404: 'There is no such call.' }) },
}

/** The other paths are aliases for client libraries. */
export const trackingSchemas: Partial<Record<string, FastifySchema>> = {
  '/api/tracking': trackingSchema,
  [CALL_PATH]: callSchema,
}
