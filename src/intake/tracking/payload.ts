/** Segment's HTTP shape, translated, so that its client libraries work unchanged. */
import { randomUUID } from 'node:crypto'
import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import {
  epochMs,
  hashKey,
  type IntakeEvent,
  InvalidEvent,
  parseTimeText,
  readTimeMs,
  readUserId,
  toPayload,
} from '../event.ts'

/** Segment's calls. Other words are anybody's text, and the kind of an event outlives an erasure. */
const KINDS = new Set(['track', 'page', 'screen', 'identify', 'group', 'alias'])
/** Bytes of JSON an event, as Segment has it. */
const TRACKING_EVENT_MAX_BYTES = 32 * 1024
/** Events in one request; what is beyond is rejected by its index. */
const TRACKING_REQUEST_MAX_EVENTS = 500
/** Rejections are told one by one only up to this: a small request must not make a large answer. */
const TRACKING_REQUEST_MAX_ITEMS = 5_000

export interface TrackingRequest {
  writeKey: string | null
  sentAtMs: number | null
  events: unknown[]
}

export interface Rejection {
  index: number
  message: string
}

/** Reads one event, an array of events, or `{batch, sentAt, writeKey}`. Throws `bad_request` for anything else. */
export function parseTrackingRequest(body: Buffer): TrackingRequest {
  const parsed = parseJson(body)
  const envelope = isObject(parsed) ? parsed : {}
  const events = eventsOf(parsed)
  if (events === null) {
    throw new AppError('bad_request', {
      message: 'The body is neither an event, nor an array, nor {"batch": […]}',
    })
  }
  if (events.length > TRACKING_REQUEST_MAX_ITEMS) {
    throw new AppError('bad_request', {
      message: `More than ${TRACKING_REQUEST_MAX_EVENTS} events in one request`,
    })
  }
  return {
    writeKey: writeKeyOf(parsed) ?? writeKeyOf(events[0]),
    sentAtMs: parseTime(envelope.sentAt),
    events,
  }
}

function writeKeyOf(value: unknown): string | null {
  return isObject(value) && typeof value.writeKey === 'string' && value.writeKey !== ''
    ? value.writeKey
    : null
}

function eventsOf(parsed: unknown): unknown[] | null {
  if (Array.isArray(parsed)) return parsed
  if (!isObject(parsed)) return null
  if (parsed.batch === undefined) return [parsed]
  return Array.isArray(parsed.batch) ? parsed.batch : null
}

/**
 * Splits a request into events to keep and events refused, by their index.
 * @param admittedBy the tracking key that named the account
 */
export function readTrackingEvents(
  { events, sentAtMs }: TrackingRequest,
  admittedBy: string,
  receivedAtMs: number,
): { accepted: IntakeEvent[]; rejected: Rejection[] } {
  const accepted: IntakeEvent[] = []
  const rejected: Rejection[] = []
  for (const [index, event] of events.entries()) {
    try {
      if (index >= TRACKING_REQUEST_MAX_EVENTS) {
        throw new InvalidEvent(`more than ${TRACKING_REQUEST_MAX_EVENTS} events in one request`)
      }
      accepted.push(readTrackingEvent(event, admittedBy, sentAtMs, receivedAtMs))
    } catch (error) {
      if (!(error instanceof InvalidEvent)) throw error
      rejected.push({ index, message: error.message })
    }
  }
  return { accepted, rejected }
}

function readTrackingEvent(
  event: unknown,
  admittedBy: string,
  sentAtMs: number | null,
  receivedAtMs: number,
): IntakeEvent {
  if (!isObject(event)) throw new InvalidEvent('the event is no object')
  if (typeof event.type !== 'string' || event.type === '') throw new InvalidEvent('type is missing')
  const { writeKey, ...content } = event
  if (isFilled(writeKey) && writeKey !== admittedBy) throw new InvalidEvent('writeKey is of another account')
  const payload = toPayload(content, refuseDeep)
  if (Buffer.byteLength(payload) > TRACKING_EVENT_MAX_BYTES) {
    throw new InvalidEvent(`the event is larger than ${TRACKING_EVENT_MAX_BYTES} bytes`)
  }
  const userId = readUserId(event.userId === '' ? null : event.userId)
  if (userId === null && !isFilled(event.anonymousId))
    throw new InvalidEvent('userId or anonymousId is required')
  const messageId = isFilled(event.messageId) ? String(event.messageId) : randomUUID()
  return {
    source: 'tracking',
    kind: KINDS.has(event.type) ? event.type : 'unknown',
    key: hashKey('tracking', 'message', messageId),
    occurredAtMs: occurredAt(event, sentAtMs ?? parseTime(event.sentAt), receivedAtMs),
    userId,
    otherUserIds: [],
    messageId: null,
    effect: { type: 'none' },
    payload,
    failure: null,
  }
}

/** Anybody can send it: what is nested some thousand levels deep is not worth the time that it takes to be written. */
function refuseDeep(): never {
  throw new InvalidEvent('the event is nested too deeply')
}

/** One that was accepted and is stored, at the time that was worked out then. Throws an InvalidEvent. */
export function readStoredTrackingEvent(event: unknown, occurredAtMs: number): IntakeEvent {
  return { ...readTrackingEvent(event, '', null, occurredAtMs), occurredAtMs }
}

function isFilled(value: unknown): boolean {
  return (typeof value === 'string' && value !== '') || typeof value === 'number'
}

/**
 * Clients' clocks are off, but their differences are right: the event is as long ago as it was when the
 * client sent it. Nothing happens in the future.
 */
function occurredAt(event: Record<string, unknown>, sentAtMs: number | null, receivedAtMs: number): number {
  const told = event.timestamp ?? event.originalTimestamp
  if (told === undefined || told === null) return receivedAtMs
  const toldMs = parseTime(told)
  if (toldMs === null) throw new InvalidEvent('timestamp is no time')
  const corrected = sentAtMs === null ? toldMs : receivedAtMs - (sentAtMs - toldMs)
  return readTimeMs(Math.min(corrected, receivedAtMs))
}

/** ISO 8601, or milliseconds since 1970, or seconds. */
function parseTime(value: unknown): number | null {
  const ms =
    typeof value === 'number' ? epochMs(value) : typeof value === 'string' ? parseTimeText(value) : Number.NaN
  return Number.isFinite(ms) ? ms : null
}
