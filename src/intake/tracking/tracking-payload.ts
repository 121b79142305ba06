/** Reads events of Segment's HTTP API, so that its client libraries work unchanged. */
import { randomUUID } from 'node:crypto'
import { TRACKING_REQUEST_MAX_EVENTS } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import { type IntakeEvent, InvalidEvent, NO_EFFECT } from '../event.ts'
import { isTooDeep, ReadingTurns, readTimeMs, readUserId, TOO_DEEP } from '../event-fields.ts'
import { epochMs, hashKey, parseTimeText } from '../event-key.ts'
import { isCredentialName, storedPayload } from '../stored-payload.ts'
import { EVENT_TYPES, typeOfEvent } from './calls.ts'
import type { Proof, Proofs } from './id-token.ts'
import type { Usage } from './tracking-budget.ts'

/** Bytes of JSON per event: Segment's limit. */
const TRACKING_EVENT_MAX_BYTES = 32 * 1024
/** Items per request. Each rejection is reported, and a small request must not cause a large response. */
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

/**
 * Reads one event, an array of events, or `{batch, sentAt, writeKey}`. Throws `bad_request` for anything else.
 * @param type the type of a single event, if the path has one
 */
export function parseTrackingRequest(body: Buffer, type: string | null): TrackingRequest {
  const parsed = parseJson(body)
  const envelope = isObject(parsed) ? parsed : {}
  const events = eventsOf(parsed, type)
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
  return isObject(value) && typeof value.writeKey === 'string' && isUsableKey(value.writeKey)
    ? value.writeKey
    : null
}

/** Jitsu's library masks the key in the body, as `***` or `key:***`, and sends it in the header X-Write-Key. */
function isUsableKey(writeKey: unknown): boolean {
  return isFilled(writeKey) && !String(writeKey).endsWith('***')
}

function eventsOf(parsed: unknown, type: string | null): unknown[] | null {
  if (Array.isArray(parsed)) return parsed
  if (!isObject(parsed)) return null
  if (parsed.batch === undefined) return [type === null ? parsed : { ...parsed, type }]
  return Array.isArray(parsed.batch) ? parsed.batch : null
}

/**
 * Splits a request into accepted and rejected events. `claimed` and `proven` are the usage of the accepted events.
 * @param admittedBy the tracking key of the account
 */
export async function readTrackingEvents(
  { events, sentAtMs }: TrackingRequest,
  admittedBy: string,
  receivedAtMs: number,
  proofs: Proofs,
): Promise<{ accepted: IntakeEvent[]; rejected: Rejection[]; claimed: Usage; proven: Usage }> {
  const accepted: IntakeEvent[] = []
  const [claimed, proven] = [
    { events: 0, bytes: 0 },
    { events: 0, bytes: 0 },
  ]
  const rejected: Rejection[] = []
  const turns = new ReadingTurns()
  for (const [index, event] of events.entries()) {
    if (turns.isOver()) await turns.next()
    try {
      if (index >= TRACKING_REQUEST_MAX_EVENTS) {
        throw new InvalidEvent(`more than ${TRACKING_REQUEST_MAX_EVENTS} events in one request`)
      }
      const proof = proofs.of(event)
      const read = readTrackingEvent(event, admittedBy, sentAtMs, receivedAtMs, proof)
      accepted.push(read)
      const usage = proof === null ? claimed : proven
      usage.events += 1
      usage.bytes += Buffer.byteLength(read.payload ?? '')
    } catch (error) {
      if (!(error instanceof InvalidEvent)) throw error
      rejected.push({ index, message: error.message })
    }
  }
  return { accepted, rejected, claimed, proven }
}

function readTrackingEvent(
  event: unknown,
  admittedBy: string,
  sentAtMs: number | null,
  receivedAtMs: number,
  proof: Proof | null,
): IntakeEvent {
  if (!isObject(event)) throw new InvalidEvent('the event is not an object')
  if (isTooDeep(event)) throw new InvalidEvent(TOO_DEEP)
  const type = typeOfEvent(event)
  if (type === null) throw new InvalidEvent('type is missing')
  const { writeKey, ...content } = event
  if (isUsableKey(writeKey) && writeKey !== admittedBy)
    throw new InvalidEvent('writeKey belongs to another account')
  const messageId = isFilled(event.messageId) ? String(event.messageId) : randomUUID()
  const typed = { ...content, type }
  const payload = proof === null ? boundedPayload(typed) : provenPayload(typed, messageId, proof)
  const userId = readUserId(proof?.userId ?? claimedUserId(event))
  if (userId === null && !isFilled(event.anonymousId))
    throw new InvalidEvent('userId or anonymousId is required')
  return {
    // Another type may be personal text, and an erasure keeps the kind of an event.
    kind: EVENT_TYPES.includes(type) ? type : 'unknown',
    key: proof === null ? hashKey('tracking', 'message', messageId) : provenKey(proof.userId, messageId),
    isProven: proof !== null,
    ...timesOf(event, sentAtMs ?? parseTime(event.sentAt), receivedAtMs),
    isOwnAct: true,
    userId,
    otherUserIds: [],
    groupId: null,
    messageId: null,
    effect: NO_EFFECT,
    payload,
    failure: null,
  }
}

/** Some sites have numeric ids. JSON.parse rounds numbers beyond 2^53, and two people would become one. */
function claimedUserId({ userId }: Record<string, unknown>): unknown {
  if (typeof userId !== 'number') return userId === '' ? null : userId
  if (Number.isInteger(userId) && !Number.isSafeInteger(userId)) {
    throw new InvalidEvent('the user id is a number that is not exact: send it as text')
  }
  return String(userId)
}

/** The size is checked first: searching 1 MiB for credentials blocks all other requests for up to 0.2 s. */
function boundedPayload(content: Record<string, unknown>): string {
  const text = JSON.stringify(content)
  if (Buffer.byteLength(text) > TRACKING_EVENT_MAX_BYTES) {
    throw new InvalidEvent(`the event is larger than ${TRACKING_EVENT_MAX_BYTES} bytes`)
  }
  return storedPayload(content, isCredentialName, text)
}

/**
 * Separate from the keys of unproven events. Otherwise anybody who guesses a messageId could send it first, and the proven event
 * would be a duplicate. The key contains the user id, so another person with a token cannot do this either.
 */
function provenKey(userId: string, messageId: string): Buffer {
  return hashKey('tracking', 'proven', userId, messageId)
}

/** Contains the proven person instead of the claimed one, and the token nowhere. */
function provenPayload(
  content: Record<string, unknown>,
  messageId: string,
  { userId, token }: Proof,
): string {
  const payload = boundedPayload({ ...content, userId, messageId })
  return token === null ? payload : payload.replaceAll(token, '[token]')
}

/** Reads a stored event again, with its stored time. Its key shows whether it was proven. Throws InvalidEvent. */
export function readStoredTrackingEvent(event: unknown, occurredAtMs: number, key: Buffer): IntakeEvent {
  const { userId, messageId } = isObject(event) ? event : {}
  const isProven =
    typeof userId === 'string' && typeof messageId === 'string' && provenKey(userId, messageId).equals(key)
  const proof = isProven ? { userId, token: null } : null
  return { ...readTrackingEvent(event, '', null, occurredAtMs, proof), occurredAtMs }
}

function isFilled(value: unknown): boolean {
  return (typeof value === 'string' && value !== '') || typeof value === 'number'
}

/**
 * The clock of a client may be wrong, but the differences between its times are right. So the age of the event at `sentAt` is
 * subtracted from the time of receipt. Times in the future become the time of receipt. The correction includes the time in transit,
 * so the corrected time may be after an erasure although the event was before it. The claimed time is therefore kept. A time that
 * cannot be read, or that is before 1970, is replaced by the time of receipt. Segment's own examples contain one.
 */
function timesOf(
  event: Record<string, unknown>,
  sentAtMs: number | null,
  receivedAtMs: number,
): Pick<IntakeEvent, 'occurredAtMs' | 'claimedAtMs'> {
  const claimed = event.timestamp ?? event.originalTimestamp
  const unknown = { occurredAtMs: receivedAtMs, claimedAtMs: storableClaim(sentAtMs) }
  if (claimed === undefined || claimed === null) return unknown
  const claimedMs = parseTime(claimed)
  const corrected =
    claimedMs === null || sentAtMs === null ? claimedMs : receivedAtMs - (sentAtMs - claimedMs)
  if (corrected === null || corrected < 0) return unknown
  return {
    occurredAtMs: readTimeMs(Math.min(corrected, receivedAtMs)),
    claimedAtMs: storableClaim(claimedMs),
  }
}

/** A time before 1970 becomes 1970. Every erasure is later. */
function storableClaim(ms: number | null): number | null {
  return ms === null ? null : Math.max(0, Math.trunc(ms))
}

/** Reads ISO 8601, or seconds or milliseconds since 1970. Returns null for anything else. */
function parseTime(value: unknown): number | null {
  const ms =
    typeof value === 'number' ? epochMs(value) : typeof value === 'string' ? parseTimeText(value) : Number.NaN
  return Number.isFinite(ms) ? ms : null
}
