/** Chatwoot's webhooks (MBOX is built on it), translated. */
import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import {
  DELIVERY_MAX_EVENTS,
  type Effect,
  epochMs,
  hashKey,
  type IntakeEvent,
  InvalidEvent,
  parseTimeText,
  readKind,
  readMessageId,
  readTimeMs,
  readUserId,
  toPayload,
} from '../event.ts'

type Fields = Record<string, unknown>

/** Characters. Chatwoot's own words are shorter; ids are numbers. */
const WORD_MAX_LENGTH = 128

/**
 * Reads one webhook or an array of them. Throws `bad_request` where there is none. Typing events and private
 * notes are left out: nobody's audience is told by them, and notes are written for colleagues. So are the people of other inboxes.
 * @param deliveryId the header x-chatwoot-delivery, the same in every retry
 * @param inboxId the only inbox that counts; null: all do
 */
export function parseChatCallback(
  body: Buffer,
  deliveryId: string | undefined,
  receivedAtMs: number,
  inboxId: string | null = null,
): IntakeEvent[] {
  const parsed = parseJson(body)
  const webhooks: unknown[] = Array.isArray(parsed) ? parsed : [parsed]
  if (webhooks.length > DELIVERY_MAX_EVENTS) {
    throw new AppError('bad_request', { message: `More than ${DELIVERY_MAX_EVENTS} events in one delivery` })
  }
  if (!Array.isArray(parsed) && !(isObject(parsed) && typeof parsed.event === 'string')) {
    throw new AppError('bad_request', {
      message: 'The body has no event: it must be a webhook of the support chat',
    })
  }
  return webhooks.flatMap((webhook, index) => {
    if (isElsewhere(webhook, inboxId) || (isObject(webhook) && isPassedOver(webhook))) return []
    return [readWebhook(webhook, deliveryId && `${deliveryId}/${index}`, receivedAtMs)]
  })
}

function isPassedOver(webhook: Fields): boolean {
  const { event, private: isPrivate } = webhook
  const isTyping = typeof event === 'string' && event.startsWith('conversation_typing_')
  return isPrivate === true || isPrivate === 'true' || isTyping
}

/** What names no inbox, such as a change of a contact, may be of any. */
export function isElsewhere(webhook: unknown, inboxId: string | null): boolean {
  if (inboxId === null || !isObject(webhook)) return false
  const named = [
    at(webhook, 'inbox', 'id'),
    webhook.inbox_id,
    at(webhook, 'conversation', 'inbox_id'),
    at(webhook, 'contact_inbox', 'inbox_id'),
  ]
  const inboxes = named.map(wordOf).filter((id) => id !== null)
  return inboxes.length === 0 || inboxes.some((id) => id !== inboxId)
}

/** A message of the channel keeps its id there as source_id: who takes it back there takes back this copy, too. */
function channelMessageId({ conversation, source_id: id }: Fields): string | null {
  return at(conversation, 'channel') === 'Channel::Line' ? readMessageId(id) : null
}

/**
 * A conversation lists its last messages. Each comes in a webhook of its own: there a private note is known as one, and what
 * its sender takes back is found. The conversation is the webhook itself, or a message's, or a visitor's.
 */
function withoutListedMessages(webhook: unknown): unknown {
  if (!isObject(webhook)) return webhook
  const kept = withoutMessages(webhook)
  for (const name of ['conversation', 'current_conversation']) {
    const conversation = kept[name]
    if (isObject(conversation)) kept[name] = withoutMessages(conversation)
  }
  return kept
}

function withoutMessages({ messages: _, ...kept }: Fields): Fields {
  return kept
}

/** One webhook, whatever it is: what cannot be applied says why. */
export function readWebhook(
  webhook: unknown,
  deliveryId: string | undefined,
  receivedAtMs: number,
): IntakeEvent {
  const fields = isObject(webhook) ? webhook : {}
  const kept = {
    source: 'mbox' as const,
    kind: readKind(fields.event),
    payload: toPayload(withoutListedMessages(webhook)),
    otherUserIds: [],
    messageId: channelMessageId(fields),
  }
  const key = deliveryId ? hashKey('mbox', 'delivery', deliveryId) : contentKey(webhook, fields, kept.kind)
  // Whom it names is read first and kept whatever else is wrong, so that erasing them finds it.
  let userId: string | null = null
  try {
    if (!isObject(webhook)) throw new InvalidEvent('the event is no object')
    const conversation = conversationOf(webhook, kept.kind)
    userId = personOf(webhook, conversation)
    const occurredAtMs = timeOf(webhook, kept.kind, receivedAtMs)
    return {
      ...kept,
      key,
      occurredAtMs,
      userId,
      effect: conversationEffect(conversation, occurredAtMs, receivedAtMs),
      failure: null,
    }
  } catch (error) {
    if (!(error instanceof InvalidEvent)) throw error
    return {
      ...kept,
      key,
      occurredAtMs: receivedAtMs,
      userId,
      effect: { type: 'none' },
      failure: error.message,
    }
  }
}

/**
 * Without a delivery id. The body's id is the message's or the conversation's own, shared by every event
 * about it, so what tells two of them apart is the time of the update or else the content.
 */
function contentKey(webhook: unknown, fields: Fields, kind: string): Buffer {
  const id = wordOf(fields.id)
  const updatedAt = wordOf(fields.updated_at)
  if (id === null || updatedAt === null) return hashKey('mbox', 'content', toPayload(webhook))
  return hashKey('mbox', 'update', kind, id, updatedAt)
}

/** Conversation events are the conversation; message events carry one. */
function conversationOf(webhook: Fields, kind: string): Fields | null {
  if (isObject(webhook.conversation)) return webhook.conversation
  return kind.startsWith('conversation_') ? webhook : null
}

/** The channel's user id, where the conversation is one of the channel: other inboxes have other ids. */
function personOf(webhook: Fields, conversation: Fields | null): string | null {
  const holders = [conversation, webhook].filter(isObject)
  const ids = holders.flatMap((holder) => [
    at(holder, 'contact_inbox', 'source_id'),
    lineUserIdOf(at(holder, 'meta', 'sender')),
  ])
  const contacts = [webhook, webhook.contact, webhook.sender].map(lineUserIdOf)
  const fromLine = holders.some((holder) => holder.channel === 'Channel::Line')
  const candidates = [...ids, ...contacts].filter(
    (id) =>
      typeof id === 'string' &&
      id !== '' &&
      !LINE_GROUP_OR_ROOM_ID.test(id) &&
      (fromLine || LINE_USER_ID.test(id)),
  )
  // The first that looks as the channel's do, else the first: what cannot be one says why.
  return readUserId(candidates.find((id) => LINE_USER_ID.test(id as string)) ?? candidates[0])
}

/** A user of a channel, or of a module channel (68 characters). */
const LINE_USER_ID = /^(LU[0-9a-z]{32}-)?U[0-9a-z]{32}$/i

/** Where a group talks, its own id stands for the contact: it is nobody. */
const LINE_GROUP_OR_ROOM_ID = /^[CR][0-9a-f]{32}$/

function lineUserIdOf(contact: unknown): unknown {
  return at(contact, 'additional_attributes', 'social_line_user_id')
}

function conversationEffect(conversation: Fields | null, occurredAtMs: number, receivedAtMs: number): Effect {
  const id = conversation && wordOf(conversation.id)
  if (conversation === null || id === null) return { type: 'none' }
  const atMs = stateTime(conversation, receivedAtMs) ?? occurredAtMs
  return { type: 'conversation', id, status: wordOf(conversation.status), atMs }
}

/** The time of its creation is that of an event only where that is what it tells. */
function timeOf(webhook: Fields, kind: string, receivedAtMs: number): number {
  const createdAtMs = readTime(webhook.created_at)
  if (kind.endsWith('_created') && createdAtMs !== null) return createdAtMs
  return readTime(webhook.updated_at) ?? readTime(webhook.timestamp) ?? createdAtMs ?? receivedAtMs
}

/**
 * Before 2025 (PR #10873) a conversation told no time of update, only the second of its last activity, `timestamp`. Several
 * updates share one: within it the order counts in which they arrive. (Not for when the event happened: one that is in flight
 * while its person is erased is from before.)
 */
function stateTime(conversation: Fields, receivedAtMs: number): number | null {
  const updatedAtMs = readTime(conversation.updated_at)
  const activeAtMs = readTime(conversation.timestamp)
  if (updatedAtMs !== null || activeAtMs === null) return updatedAtMs
  return Math.max(activeAtMs, Math.min(receivedAtMs, activeAtMs + 999))
}

/**
 * A time as Chatwoot writes it: ISO 8601, `YYYY-MM-DD HH:MM:SS UTC`, or seconds since 1970, whole or with a
 * fraction, as number or text. Null where there is none; an InvalidEvent for what is none of these.
 */
export function readTime(value: unknown): number | null {
  if (value === undefined || value === null || value === '') return null
  const isNumber = typeof value === 'number' || (typeof value === 'string' && /^\d+(\.\d+)?$/.test(value))
  if (isNumber) return readTimeMs(epochMs(Number(value)))
  if (typeof value !== 'string') throw new InvalidEvent('the time is of no known form')
  return readTimeMs(
    parseTimeText(value.replace(/^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) UTC$/, '$1T$2Z')),
  )
}

/** An id or status: a number or a short text, as text. */
function wordOf(value: unknown): string | null {
  if (typeof value === 'number' && Number.isFinite(value)) return String(value)
  if (typeof value !== 'string' || value === '' || value.length > WORD_MAX_LENGTH) return null
  return isStorableText(value) ? value : null
}

function at(value: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>((inner, name) => (isObject(inner) ? inner[name] : undefined), value)
}
