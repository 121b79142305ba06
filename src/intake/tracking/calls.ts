/** The calls of Segment's HTTP API: their paths and the types of their events. */
import { AppError } from '../../errors.ts'

/**
 * Client libraries append a path to the configured URL: Segment and RudderStack `/v1/track` or `/v1/batch`, Segment's browser library
 * `/t`, Jitsu `/api/s/track` in browsers and `/api/s/s2s/track` on servers. RudderStack's beacons go to `/beacon/v1/batch`.
 */
export const TRACKING_PATHS = [
  '/api/tracking',
  '/api/tracking/:call',
  '/api/tracking/v1/:call',
  '/api/tracking/api/s/:call',
  '/api/tracking/api/s/s2s/:call',
  '/api/tracking/beacon/v1/batch',
] as const

/** Segment's browser library reports counters about itself here, without an account or a person. */
export const METRICS_PATHS = ['/api/tracking/m', '/api/tracking/v1/m'] as const

/** The event type of each call. In a batch (null), each event has its own type. */
const TYPES_BY_CALL = new Map<string, string | null>([
  ['track', 'track'],
  ['identify', 'identify'],
  ['page', 'page'],
  ['screen', 'screen'],
  ['group', 'group'],
  ['alias', 'alias'],
  ['batch', null],
  ['import', null],
  ['t', 'track'],
  ['i', 'identify'],
  ['p', 'page'],
  ['s', 'screen'],
  ['g', 'group'],
  ['a', 'alias'],
  ['b', null],
])

export const TRACKING_CALLS = [...TYPES_BY_CALL.keys()]

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
