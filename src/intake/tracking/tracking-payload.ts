/** Reads events of Segment's HTTP API, so that its client libraries work unchanged. */
import { randomUUID } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { BODY_MAX_BYTES } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import type { TokenVerdict } from '../../line-api/id-tokens.ts'
import { type IntakeEvent, InvalidEvent, NO_EFFECT } from '../event.ts'
import {
  epochMs,
  hashKey,
  isTooDeep,
  parseTimeText,
  readTimeMs,
  readUserId,
  TOO_DEEP,
} from '../event-fields.ts'
import { isCredentialName, storedPayload } from '../stored-payload.ts'
import { EVENT_TYPES, typeOfEvent } from './calls.ts'
import { readTouch } from './touch.ts'

/** Bytes of JSON per event: Segment's limit. */
const TRACKING_EVENT_MAX_BYTES = 32 * 1024
/** Other requests wait this long for the events of one. Most requests are read in less than 0.1 ms. */
const TURN_MAX_MS = 2
/** Every event that fits into a body. Each rejection is reported, so more items than events could fit would make a large response. */
const REQUEST_MAX_EVENTS = Math.floor(BODY_MAX_BYTES / '{"name":1,"userId":1},'.length)

export interface TrackingRequest {
  /** Makes ids of events that have none. They are the same in each attempt to store the request. */
  id: string
  /** Index of the first one of `events` in the request. */
  start: number
  /** to its tracking key; another attempt is not charged again */
  isCharged: boolean
  writeKey: string | null
  sentAtMs: number | null
  events: unknown[]
  /** The ID token for all events that have none of their own. */
  idToken: string | null
}

/** Counts against the budgets of a tracking key or an address. */
export interface Usage {
  events: number
  bytes: number
}

export interface Rejection {
  index: number
  message: string
}

/** @param type the type of a single event, if the path has one */
export function parseTrackingRequest(
  body: Buffer,
  type: string | null,
  idToken: string | null = null,
): TrackingRequest {
  const parsed = parseJson(body)
  const envelope = isObject(parsed) ? parsed : {}
  const events = eventsOf(parsed, type)
  if (events === null) {
    throw new AppError('bad_request', {
      message: 'The body is neither an event, nor an array, nor {"batch": […]}',
    })
  }
  if (events.length > REQUEST_MAX_EVENTS) {
    throw new AppError('bad_request', { message: `More than ${REQUEST_MAX_EVENTS} events in one request` })
  }
  return {
    id: randomUUID(),
    start: 0,
    isCharged: false,
    writeKey: writeKeyOf(parsed) ?? writeKeyOf(events[0]),
    sentAtMs: parseTime(envelope.sentAt),
    events,
    idToken,
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

export function idTokensOf({ events, idToken }: TrackingRequest): Set<string> {
  const tokens = events.map((event) => tokenOf(event, idToken))
  return new Set(tokens.filter((token) => typeof token === 'string'))
}

/** `liff.getIDToken()` returns null if the visitor is not logged in. */
export function tokenOf(event: unknown, idToken: string | null): unknown {
  const own = isObject(event) && isObject(event.context) ? event.context.idToken : null
  return own === undefined || own === null || own === '' ? idToken : own
}

interface Proof {
  userId: string
  /** Null: the event was read from storage, which does not contain the token. */
  token: string | null
}

/** Null: the event has no token, so anybody may have sent it. */
function proofOf(token: unknown, verdicts: ReadonlyMap<string, TokenVerdict>): Proof | null {
  if (token === null) return null
  const verdict = typeof token === 'string' ? verdicts.get(token) : undefined
  if (verdict === undefined) throw new InvalidEvent('the ID token is not a text')
  if (!verdict.isValid) throw new InvalidEvent(`the ID token ${verdict.fault}`)
  return { userId: verdict.userId, token: token as string }
}

/** `usage` is that of the accepted events. @param admittedBy the tracking key of the account */
export async function readTrackingEvents(
  { id, start, events, sentAtMs, idToken }: TrackingRequest,
  admittedBy: string,
  receivedAtMs: number,
  verdicts: ReadonlyMap<string, TokenVerdict>,
): Promise<{ accepted: IntakeEvent[]; rejected: Rejection[]; usage: { claimed: Usage; proven: Usage } }> {
  const accepted: IntakeEvent[] = []
  const usage = { claimed: { events: 0, bytes: 0 }, proven: { events: 0, bytes: 0 } }
  const rejected: Rejection[] = []
  let startedAtMs = performance.now()
  for (const [position, event] of events.entries()) {
    const index = start + position
    if (performance.now() - startedAtMs > TURN_MAX_MS) {
      await setImmediate()
      startedAtMs = performance.now()
    }
    try {
      const proof = proofOf(tokenOf(event, idToken), verdicts)
      const read = readTrackingEvent(event, `${id}/${index}`, admittedBy, sentAtMs, receivedAtMs, proof)
      accepted.push(read)
      const used = proof === null ? usage.claimed : usage.proven
      used.events += 1
      used.bytes += Buffer.byteLength(read.payload)
    } catch (error) {
      if (!(error instanceof InvalidEvent)) throw error
      rejected.push({ index, message: error.message })
    }
  }
  return { accepted, rejected, usage }
}

function readTrackingEvent(
  event: unknown,
  madeId: string,
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
  const messageId = isFilled(event.messageId) ? String(event.messageId) : madeId
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
    effect: proof === null ? NO_EFFECT : readTouch(event.context),
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

/** The size first: searching 1 MiB for credentials blocks all other requests for up to 0.2 s. */
function boundedPayload(content: Record<string, unknown>): string {
  const text = JSON.stringify(content)
  if (Buffer.byteLength(text) > TRACKING_EVENT_MAX_BYTES) {
    throw new InvalidEvent(`the event is larger than ${TRACKING_EVENT_MAX_BYTES} bytes`)
  }
  return storedPayload(content, isCredentialName, text)
}

/** Nobody who guesses a messageId can send it first, without a token or as another person, and make the proven event a duplicate. */
function provenKey(userId: string, messageId: string): Buffer {
  return hashKey('tracking', 'proven', userId, messageId)
}

function provenPayload(
  content: Record<string, unknown>,
  messageId: string,
  { userId, token }: Proof,
): string {
  const payload = boundedPayload({ ...content, userId, messageId })
  return token === null ? payload : payload.replaceAll(token, '[token]')
}

/** With its stored time. Its key shows whether it was proven. Throws InvalidEvent. */
export function readStoredTrackingEvent(event: unknown, occurredAtMs: number, key: Buffer): IntakeEvent {
  const { userId, messageId } = isObject(event) ? event : {}
  const isProven =
    typeof userId === 'string' && typeof messageId === 'string' && provenKey(userId, messageId).equals(key)
  const proof = isProven ? { userId, token: null } : null
  return { ...readTrackingEvent(event, '', '', null, occurredAtMs, proof), occurredAtMs }
}

function isFilled(value: unknown): boolean {
  return (typeof value === 'string' && value !== '') || typeof value === 'number'
}

/**
 * The clock of a client may be wrong, but the differences between its times are right. So the age of the event at `sentAt` is
 * subtracted from the time of receipt, which also replaces times that are in the future, before 1970, or unreadable, as one of
 * Segment's own examples is. The correction includes the time in transit, so the corrected time may be after an erasure although the
 * event was before it. The claimed time is therefore kept.
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

/** ISO 8601, or seconds or milliseconds since 1970. */
function parseTime(value: unknown): number | null {
  const ms =
    typeof value === 'number' ? epochMs(value) : typeof value === 'string' ? parseTimeText(value) : Number.NaN
  return Number.isFinite(ms) ? ms : null
}
