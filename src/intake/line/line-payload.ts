/** Reads LINE's webhook events, including kinds that do not exist yet. */
import { USER_ID_MAX_LENGTH } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import { LINE } from '../../line-api/line-signature.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { DELIVERY_MAX_EVENTS, type Effect, type IntakeEvent, InvalidEvent, NO_EFFECT } from '../event.ts'
import {
  cutDeep,
  hashKey,
  isTooDeep,
  readKind,
  readOptionalId,
  readTimeMs,
  readUserId,
  SHALLOW_TEXT_LENGTH,
  TOO_DEEP,
  ulidKey,
} from '../event-fields.ts'

type LineFields = Record<string, unknown>

export interface LineDelivery {
  /** The bot user id that LINE delivers to. Null: the delivery contains none. */
  destination: string | null
  events: IntakeEvent[]
  /** LINE sent one of the events before, and got no 2xx. */
  isRedelivery: boolean
}

/** Throws `bad_request` if there is no array of events or it is too long. @param receivedAtMs replaces a time that cannot be used */
export function parseLineDelivery(body: Buffer, receivedAtMs: number): LineDelivery {
  const text = body.toString('utf8')
  const single = readSingleEvent(text, receivedAtMs)
  if (single !== null) return single
  const delivery = parseJson(text)
  if (!isObject(delivery) || !Array.isArray(delivery.events)) {
    throw new AppError('bad_request', { message: 'The body has no array named events' })
  }
  if (delivery.events.length > DELIVERY_MAX_EVENTS) {
    throw new AppError('bad_request', { message: `More than ${DELIVERY_MAX_EVENTS} events in one delivery` })
  }
  return {
    destination: readDestination(delivery.destination),
    events: delivery.events.map((event) => readLineEvent(event, receivedAtMs)),
    isRedelivery: delivery.events.some(isRedelivered),
  }
}

function isRedelivered(event: unknown): boolean {
  return isObject(event) && isObject(event.deliveryContext) && event.deliveryContext.isRedelivery === true
}

/** For an event that is stored later than its reply token is valid. */
export function withoutReplyToken(event: IntakeEvent): IntakeEvent {
  const content = parseJson(event.payload)
  if (!isObject(content) || !('replyToken' in content)) return event
  const { replyToken: _, ...rest } = content
  return { ...event, payload: JSON.stringify(rest) }
}

/**
 * A fast path: most deliveries carry one event in LINE's own format, whose text is then a slice of the body. JSON.stringify would
 * take 4 µs, a sixteenth of the time that this process spends on a delivery. If the text between this beginning and this end is one
 * JSON value, it is the only element of the array. Null: the whole delivery must be parsed.
 */
function readSingleEvent(delivery: string, receivedAtMs: number): LineDelivery | null {
  const [beginning, destination] = /^\{"destination":"(\w*)","events":\[(?=\{)/.exec(delivery) ?? []
  if (beginning === undefined || destination === undefined || !delivery.endsWith(']}')) return null
  const payload = delivery.slice(beginning.length, -2)
  // Several events, or escaped non-ASCII text, which takes twice the space that it needs.
  if (payload.includes('},{') || payload.includes('\\u')) return null
  try {
    const event: unknown = JSON.parse(payload)
    return {
      destination: readDestination(destination),
      events: [readLineEvent(event, receivedAtMs, payload)],
      isRedelivery: isRedelivered(event),
    }
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

function readDestination(value: unknown): string | null {
  if (typeof value !== 'string' || value === '' || value.length > USER_ID_MAX_LENGTH) return null
  return isStorableText(value) ? value : null
}

/** The payload keeps every field, even one that looks like a credential, because endpoints receive LINE's events unchanged. */
export function readLineEvent(event: unknown, receivedAtMs: number, text?: string): IntakeEvent {
  if ((text === undefined || text.length > SHALLOW_TEXT_LENGTH) && isTooDeep(event)) {
    return { ...readLineEvent(cutDeep(event), receivedAtMs), effect: NO_EFFECT, failure: TOO_DEEP }
  }
  const payload = text ?? JSON.stringify(event)
  if (!isObject(event)) {
    const failure = 'the event is not an object'
    return { ...readLineEvent({}, receivedAtMs, payload), key: contentKey(event), failure }
  }
  let failure: string | null = null
  // Reads the other fields, too, so that an erasure finds the event by its person.
  const attempt = <T>(read: () => T, otherwise: T): T => {
    try {
      return read()
    } catch (error) {
      if (!(error instanceof InvalidEvent)) throw error
      failure ??= error.message
      return otherwise
    }
  }
  // One literal, whose fields are read in order: spreading so many fields takes 1 µs.
  return {
    kind: readKind(event.type),
    key: lineKey(event),
    occurredAtMs: attempt(() => readTimeMs(event.timestamp), receivedAtMs),
    claimedAtMs: null,
    isOwnAct: isOwnAct(event),
    userId: attempt(() => sourceUserId(event), null),
    otherUserIds: readMembers(event, (id) => attempt(() => readUserId(id), null)),
    groupId: groupIdOf(event),
    messageId: messageIdOf(event),
    payload,
    effect: failure === null ? lineEffect(event) : NO_EFFECT,
    failure,
  }
}

/** Until 2022 the console's test button sent messages from this user, who is not a person. */
const TEST_USER_ID = 'Udeadbeefdeadbeefdeadbeefdeadbeef'

function sourceUserId({ source }: LineFields): string | null {
  return isObject(source) && source.userId !== TEST_USER_ID ? readUserId(source.userId) : null
}

/** webhookEventId is the same in every redelivery. Events from before 2022 lack it, so their content identifies them. */
function lineKey(event: LineFields): Buffer {
  const id = event.webhookEventId
  if (typeof id === 'string' && id !== '') return ulidKey(id) ?? hashKey(LINE, 'id', id)
  // deliveryContext differs in a redelivery.
  const { deliveryContext: _, ...content } = event
  return contentKey(content)
}

const contentKey = (content: unknown) => hashKey(LINE, 'content', JSON.stringify(content))

/** Kinds that LINE itself, a module channel or an agent causes. For all others, the source is the user who acted. */
const KINDS_OF_OTHERS = new Set<unknown>([
  'activated',
  'deactivated',
  'delivery',
  'module',
  'botSuspended',
  'botResumed',
])

/** The table "Acts of a person" in docs/api.md lists every kind. */
function isOwnAct({ type, membership }: LineFields): boolean {
  const isRenewal = type === 'membership' && isObject(membership) && membership.type === 'renewed'
  return !isRenewal && !KINDS_OF_OTHERS.has(type)
}

function lineEffect(event: LineFields): Effect {
  switch (event.type) {
    case 'follow':
      return { type: 'relationship', relationship: 'following' }
    case 'unfollow':
      return { type: 'relationship', relationship: 'blocked' }
    case 'unsend': {
      const messageId = isObject(event.unsend) ? readOptionalId(event.unsend.messageId) : null
      return messageId === null ? NO_EFFECT : { type: 'unsend', messageId }
    }
    case 'botSuspended':
      return { type: 'accountState', state: 'suspended' }
    case 'botResumed':
      return { type: 'accountState', state: 'resumed' }
    case 'module': {
      const change = isObject(event.module) ? event.module.type : null
      return change === 'attached' || change === 'detached'
        ? { type: 'accountState', state: change }
        : NO_EFFECT
    }
    default:
      return NO_EFFECT
  }
}

/** A `messageEdited` event also contains its message. */
function messageIdOf(event: LineFields): string | null {
  return isObject(event.message) ? readOptionalId(event.message.id) : null
}

/** Groups and rooms share one namespace of ids. */
function groupIdOf({ source }: LineFields): string | null {
  if (!isObject(source)) return null
  return readOptionalId(source.groupId) ?? readOptionalId(source.roomId)
}

function readMembers(event: LineFields, read: (id: unknown) => string | null): string[] {
  if (event.joined === undefined && event.left === undefined) return NOBODY
  const members = [event.joined, event.left].flatMap((change) =>
    isObject(change) && Array.isArray(change.members) ? change.members.filter(isObject) : [],
  )
  const userIds = members.map(({ userId }) => read(userId)).filter((userId) => userId !== null)
  return [...new Set(userIds)]
}

const NOBODY: string[] = []
