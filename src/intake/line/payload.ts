/** LINE's webhook events, translated. Every kind is kept, known today or not. */

import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import {
  DELIVERY_MAX_EVENTS,
  type Effect,
  hashKey,
  type IntakeEvent,
  InvalidEvent,
  idKey,
  readKind,
  readMessageId,
  readTimeMs,
  readUserId,
  toPayload,
} from '../event.ts'

export interface LineDelivery {
  /** the bot user id that LINE delivers to */
  destination: string | null
  events: IntakeEvent[]
}

/**
 * Reads a delivery whose signature has been checked. Throws `bad_request` only where there is no list of
 * events; an event that makes no sense by itself is kept with its reason.
 * @param receivedAtMs stands in for a time that cannot be used
 */
export function parseLineDelivery(body: Buffer, receivedAtMs: number): LineDelivery {
  const text = body.toString('utf8')
  const lone = readLoneEvent(text, receivedAtMs)
  if (lone !== null) return lone
  const delivery = parseJson(text)
  if (!isObject(delivery) || !Array.isArray(delivery.events)) {
    throw new AppError('bad_request', { message: 'The body has no array named events' })
  }
  if (delivery.events.length > DELIVERY_MAX_EVENTS) {
    throw new AppError('bad_request', { message: `More than ${DELIVERY_MAX_EVENTS} events in one delivery` })
  }
  const destination = delivery.destination
  return {
    destination: typeof destination === 'string' ? destination : null,
    events: delivery.events.map((event) => readLineEvent(event, receivedAtMs)),
  }
}

/**
 * Most deliveries bring one event, and LINE writes all of them in one way: then the event's text is there already. Writing it
 * anew takes 4 µs, a sixteenth of what this process does for a delivery. What stands between such a beginning and such an end
 * and is one JSON value by itself, is the one element of the array. Null: the delivery must be read as a whole.
 */
function readLoneEvent(delivery: string, receivedAtMs: number): LineDelivery | null {
  const [beginning, destination] = /^\{"destination":"(\w*)","events":\[(?=\{)/.exec(delivery) ?? []
  if (beginning === undefined || destination === undefined || !delivery.endsWith(']}')) return null
  const payload = delivery.slice(beginning.length, -2)
  // Several events; or characters beyond ASCII as LINE escapes them, in twice the room that they need.
  if (payload.includes('},{') || payload.includes('\\u')) return null
  try {
    return { destination, events: [readLineEvent(JSON.parse(payload), receivedAtMs, payload)] }
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

/** One event, whatever it is: what cannot be applied says why. */
export function readLineEvent(
  event: unknown,
  receivedAtMs: number,
  payload: string = toPayload(event),
): IntakeEvent {
  if (!isObject(event))
    return unusable({}, contentKey(event), payload, receivedAtMs, 'the event is no object')
  try {
    return {
      source: 'line',
      kind: readKind(event.type),
      key: lineKey(event),
      occurredAtMs: readTimeMs(event.timestamp),
      userId: sourceUserId(event),
      otherUserIds: readMembers(event),
      messageId: messageIdOf(event),
      effect: lineEffect(event),
      payload,
      failure: null,
    }
  } catch (error) {
    if (!(error instanceof InvalidEvent)) throw error
    return unusable(event, lineKey(event), payload, receivedAtMs, error.message)
  }
}

/** An event that cannot be applied, with what can still be said of it: whom it names, so that erasing them finds it. */
function unusable(
  event: Record<string, unknown>,
  key: Buffer,
  payload: string,
  receivedAtMs: number,
  failure: string,
): IntakeEvent {
  const attempt = <T>(read: () => T, otherwise: T): T => {
    try {
      return read()
    } catch {
      return otherwise
    }
  }
  return {
    source: 'line',
    kind: readKind(event.type),
    key,
    occurredAtMs: attempt(() => readTimeMs(event.timestamp), receivedAtMs),
    userId: attempt(() => sourceUserId(event), null),
    otherUserIds: readMembers(event, (id) => attempt(() => readUserId(id), null)),
    messageId: messageIdOf(event),
    effect: NO_EFFECT,
    payload,
    failure,
  }
}

/** Whom the console's test button sent messages of, until 2022: nobody. */
const TEST_USER_ID = 'Udeadbeefdeadbeefdeadbeefdeadbeef'

function sourceUserId({ source }: Record<string, unknown>): string | null {
  return isObject(source) && source.userId !== TEST_USER_ID ? readUserId(source.userId) : null
}

/** webhookEventId is the same in every redelivery. Events from before 2022 have none: their content speaks. */
function lineKey(event: Record<string, unknown>): Buffer {
  const id = event.webhookEventId
  if (typeof id === 'string' && id !== '') return idKey('line', id)
  const { deliveryContext: _differsWhenRedelivered, ...content } = event
  return contentKey(content)
}

const contentKey = (content: unknown) => hashKey('line', 'content', toPayload(content))

const NO_EFFECT: Effect = { type: 'none' }

function lineEffect(event: Record<string, unknown>): Effect {
  switch (event.type) {
    case 'follow':
      return { type: 'relationship', relationship: 'following' }
    case 'unfollow':
      return { type: 'relationship', relationship: 'blocked' }
    case 'unsend': {
      const messageId = isObject(event.unsend) ? readMessageId(event.unsend.messageId) : null
      return messageId === null ? NO_EFFECT : { type: 'unsend', messageId }
    }
    case 'botSuspended':
      return { type: 'suspension', suspended: true }
    case 'botResumed':
      return { type: 'suspension', suspended: false }
    default:
      return NO_EFFECT
  }
}

/** message, and messageEdited, which brings the same message again. */
function messageIdOf(event: Record<string, unknown>): string | null {
  return isObject(event.message) ? readMessageId(event.message.id) : null
}

/** People whom memberJoined or memberLeft name. */
function readMembers(
  event: Record<string, unknown>,
  read: (id: unknown) => string | null = readUserId,
): string[] {
  if (event.joined === undefined && event.left === undefined) return NOBODY
  const members = [event.joined, event.left].flatMap((change) =>
    isObject(change) && Array.isArray(change.members) ? change.members.filter(isObject) : [],
  )
  const userIds = members.map(({ userId }) => read(userId)).filter((userId) => userId !== null)
  return [...new Set(userIds)]
}

const NOBODY: string[] = []
