/** LINE's webhook events, translated. Every kind is kept, known today or not. */

import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import {
  DELIVERY_MAX_EVENTS,
  type Effect,
  hashKey,
  type IntakeEvent,
  idKey,
  readKind,
  readMessageId,
  readTimeMs,
  readUserId,
  toPayload,
  Unusable,
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
  const delivery = parseJson(body)
  if (!isObject(delivery) || !Array.isArray(delivery.events)) {
    throw new AppError('bad_request', { message: 'The body has no array named events' })
  }
  if (delivery.events.length > DELIVERY_MAX_EVENTS) {
    throw new AppError('bad_request', { message: `More than ${DELIVERY_MAX_EVENTS} events in one delivery` })
  }
  const destination = delivery.destination
  return {
    destination: typeof destination === 'string' ? destination : null,
    events: delivery.events.map((event) => parseLineEvent(event, receivedAtMs)),
  }
}

function parseLineEvent(event: unknown, receivedAtMs: number): IntakeEvent {
  const payload = toPayload(event)
  const kept = {
    source: 'line' as const,
    kind: isObject(event) ? readKind(event.type) : 'unknown',
    key: lineKey(event, payload),
    payload,
  }
  try {
    if (!isObject(event)) throw new Unusable('the event is no object')
    return {
      ...kept,
      occurredAtMs: readTimeMs(event.timestamp),
      userId: isObject(event.source) ? readUserId(event.source.userId) : null,
      otherUserIds: readMembers(event),
      messageId: messageIdOf(event),
      effect: lineEffect(event),
      failure: null,
    }
  } catch (error) {
    if (!(error instanceof Unusable)) throw error
    return { ...kept, ...salvage(event, receivedAtMs), failure: error.message }
  }
}

/** webhookEventId is the same in every redelivery. Events from before 2022 have none: their content speaks. */
function lineKey(event: unknown, payload: string): Buffer {
  if (!isObject(event)) return hashKey('line', 'content', payload)
  const id = event.webhookEventId
  if (typeof id === 'string' && id !== '') return idKey('line', id)
  const { deliveryContext: _differsWhenRedelivered, ...content } = event
  return hashKey('line', 'content', toPayload(content))
}

function lineEffect(event: Record<string, unknown>): Effect {
  switch (event.type) {
    case 'follow':
      return { type: 'relationship', relationship: 'following' }
    case 'unfollow':
      return { type: 'relationship', relationship: 'blocked' }
    case 'unsend': {
      const messageId = isObject(event.unsend) ? readMessageId(event.unsend.messageId) : null
      return messageId === null ? { type: 'none' } : { type: 'unsend', messageId }
    }
    case 'botSuspended':
      return { type: 'suspension', suspended: true }
    case 'botResumed':
      return { type: 'suspension', suspended: false }
    default:
      return { type: 'none' }
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
  const members = [event.joined, event.left].flatMap((change) =>
    isObject(change) && Array.isArray(change.members) ? change.members.filter(isObject) : [],
  )
  const userIds = members.map(({ userId }) => read(userId)).filter((userId) => userId !== null)
  return [...new Set(userIds)]
}

/** What can still be said of an event that cannot be applied: whom it names, so that erasing them finds it. */
function salvage(event: unknown, receivedAtMs: number) {
  const attempt = <T>(read: () => T, otherwise: T): T => {
    try {
      return read()
    } catch {
      return otherwise
    }
  }
  const fields = isObject(event) ? event : {}
  const source = isObject(fields.source) ? fields.source : {}
  return {
    occurredAtMs: attempt(() => readTimeMs(fields.timestamp), receivedAtMs),
    userId: attempt(() => readUserId(source.userId), null),
    otherUserIds: readMembers(fields, (id) => attempt(() => readUserId(id), null)),
    messageId: messageIdOf(fields),
    effect: { type: 'none' as const },
  }
}
