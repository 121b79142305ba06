/** Reads Chatwoot's webhooks. MBOX is built on Chatwoot. */
import { createHash } from 'node:crypto'
import { AppError } from '../../errors.ts'
import { isObject, parseJson } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { DELIVERY_MAX_EVENTS, type Effect, type IntakeEvent, InvalidEvent, NO_EFFECT } from '../event.ts'
import {
  cutDeep,
  hashKey,
  isTooDeep,
  readKind,
  readOptionalId,
  readTime,
  readUserId,
  TOO_DEEP,
  timedKey,
} from '../event-fields.ts'
import { isCredentialName, storedPayload } from '../stored-payload.ts'

type ChatFields = Record<string, unknown>

/** Characters. Chatwoot's statuses are shorter, and its ids are numbers. */
const SHORT_TEXT_MAX_LENGTH = 128

/** Skips typing events, private notes among agents, and webhooks of other inboxes. @param inboxId null: every inbox is the account's */
export function parseChatCallback(
  body: Buffer,
  delivery: DeliveryIdentity,
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
      message: 'The body has no event. Send a webhook of the support chat.',
    })
  }
  return webhooks.flatMap((webhook, index) => {
    if (belongsToOtherInbox(webhook, inboxId) || (isObject(webhook) && isSkipped(webhook))) return []
    return [readWebhook(webhook, deliveryKey(body, webhook, index, delivery), receivedAtMs)]
  })
}

interface DeliveryIdentity {
  /** The header x-chatwoot-delivery, the same in every retry. */
  id: string | undefined
  isSigned: boolean
}

/**
 * The key of a signed delivery depends on the body, which is the same in every retry. The signature does not cover the delivery id, so
 * a captured body could be replayed with other ids. Null: the webhook's fields identify it.
 */
function deliveryKey(
  body: Buffer,
  webhook: unknown,
  index: number,
  { id, isSigned }: DeliveryIdentity,
): Buffer | null {
  if (isSigned) {
    const digest = createHash('sha256').update(body).digest('base64')
    const fields = isObject(webhook) ? webhook : {}
    return timedKey(keyTimeOf(fields, readKind(fields.event)), 'mbox', 'signed', digest, String(index))
  }
  return id ? hashKey('mbox', 'delivery', `${id}/${index}`) : null
}

function isSkipped(webhook: ChatFields): boolean {
  const { event, private: isPrivate } = webhook
  const isTyping = typeof event === 'string' && event.startsWith('conversation_typing_')
  return isPrivate === true || isPrivate === 'true' || isTyping
}

/** A webhook without an inbox, such as a change of a contact, may belong to any inbox, so it counts as another one's. */
export function belongsToOtherInbox(webhook: unknown, inboxId: string | null): boolean {
  if (inboxId === null || !isObject(webhook)) return false
  const values = [
    at(webhook, 'inbox', 'id'),
    webhook.inbox_id,
    at(webhook, 'conversation', 'inbox_id'),
    at(webhook, 'contact_inbox', 'inbox_id'),
  ]
  const inboxes = values.map(readShortText).filter((id) => id !== null)
  return inboxes.length === 0 || inboxes.some((id) => id !== inboxId)
}

/** A LINE message has its LINE id as source_id, so an unsend on LINE also erases this copy. */
function channelMessageId({ conversation, source_id: id }: ChatFields): string | null {
  return at(conversation, 'channel') === 'Channel::Line' ? readOptionalId(id) : null
}

/** Fields of inbox events that contain credentials under names that differ between channels and versions. They are not stored. */
const CHANNEL_FIELDS = new Set(['channel', 'provider_config', 'changed_attributes'])

function storedContent(webhook: unknown): string {
  const kept = withoutListedMessages(webhook)
  const event = at(webhook, 'event')
  const isAboutInbox = typeof event === 'string' && event.startsWith('inbox_')
  if (!isAboutInbox) return storedPayload(kept)
  return storedPayload(kept, (name) => CHANNEL_FIELDS.has(name) || isCredentialName(name))
}

/** Each message that a conversation lists has a webhook of its own, where private notes and unsent messages are recognized. */
function withoutListedMessages(webhook: unknown): unknown {
  if (!isObject(webhook)) return webhook
  const kept = withoutMessages(webhook)
  for (const name of ['conversation', 'current_conversation']) {
    const conversation = kept[name]
    if (isObject(conversation)) kept[name] = withoutMessages(conversation)
  }
  return kept
}

function withoutMessages({ messages: _, ...kept }: ChatFields): ChatFields {
  return kept
}

/** @param knownKey null: the webhook's fields identify it */
export function readWebhook(webhook: unknown, knownKey: Buffer | null, receivedAtMs: number): IntakeEvent {
  if (isTooDeep(webhook)) {
    return { ...readWebhook(cutDeep(webhook), knownKey, receivedAtMs), effect: NO_EFFECT, failure: TOO_DEEP }
  }
  const fields = isObject(webhook) ? webhook : {}
  const kind = readKind(fields.event)
  const event: IntakeEvent = {
    kind,
    key: knownKey ?? contentKey(webhook, fields, kind),
    occurredAtMs: receivedAtMs,
    claimedAtMs: null,
    isOwnAct: isOwnAct(fields),
    userId: null,
    otherUserIds: [],
    groupId: null,
    messageId: channelMessageId(fields),
    effect: NO_EFFECT,
    payload: storedContent(webhook),
    failure: null,
  }
  try {
    if (!isObject(webhook)) throw new InvalidEvent('the event is not an object')
    const conversation = conversationOf(webhook, kind)
    // Read first, so that an erasure finds the event even if its other fields cannot be read.
    event.userId = personOf(webhook, conversation)
    event.occurredAtMs = statedTimeOf(webhook, kind) ?? receivedAtMs
    event.effect = conversationEffect(conversation, event.occurredAtMs, receivedAtMs)
  } catch (error) {
    if (!(error instanceof InvalidEvent)) throw error
    event.failure = error.message
  }
  return event
}

/** The table "Acts of a person" in docs/api.md. The type of a message is a text in webhooks of messages and a number elsewhere. */
function isOwnAct({ event, message_type: type }: ChatFields): boolean {
  if (event === 'message_created') return type === 'incoming' || type === 0
  return event === 'webwidget_triggered'
}

/** All events about a message or conversation share its `id`, so the time of the update, or else the content, distinguishes them. */
function contentKey(webhook: unknown, fields: ChatFields, kind: string): Buffer {
  const id = readShortText(fields.id)
  const updatedAt = readShortText(fields.updated_at)
  if (id === null || updatedAt === null) {
    return timedKey(keyTimeOf(fields, kind), 'mbox', 'content', JSON.stringify(webhook))
  }
  return timedKey(keyTimeOf({ updated_at: updatedAt }, kind), 'mbox', 'update', kind, id, updatedAt)
}

/** A conversation event is the conversation itself. A message event contains one. */
function conversationOf(webhook: ChatFields, kind: string): ChatFields | null {
  if (isObject(webhook.conversation)) return webhook.conversation
  return kind.startsWith('conversation_') ? webhook : null
}

function personOf(webhook: ChatFields, conversation: ChatFields | null): string | null {
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
  // Prefer an id in LINE's format. Otherwise readUserId accepts or rejects the first one.
  return readUserId(candidates.find((id) => LINE_USER_ID.test(id as string)) ?? candidates[0])
}

/** The id of a user in a channel (33 characters) or a module channel (68). */
const LINE_USER_ID = /^(LU[0-9a-z]{32}-)?U[0-9a-z]{32}$/i

/** In the conversation of a group, the group's id replaces that of the contact. */
const LINE_GROUP_OR_ROOM_ID = /^[CR][0-9a-f]{32}$/

function lineUserIdOf(contact: unknown): unknown {
  return at(contact, 'additional_attributes', 'social_line_user_id')
}

function conversationEffect(
  conversation: ChatFields | null,
  occurredAtMs: number,
  receivedAtMs: number,
): Effect {
  const id = conversation && readShortText(conversation.id)
  if (conversation === null || id === null) return NO_EFFECT
  const atMs = stateTime(conversation, receivedAtMs) ?? occurredAtMs
  return { type: 'conversation', id, status: readShortText(conversation.status), atMs }
}

function readShortText(value: unknown): string | null {
  if (typeof value === 'number' && Number.isFinite(value)) return String(value)
  if (typeof value !== 'string' || value === '' || value.length > SHORT_TEXT_MAX_LENGTH) return null
  return isStorableText(value) ? value : null
}

function at(value: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>((inner, name) => (isObject(inner) ? inner[name] : undefined), value)
}

/** `created_at` is the time of the event only for the events that report a creation. */
function statedTimeOf(webhook: ChatFields, kind: string): number | null {
  const createdAtMs = readTime(webhook.created_at)
  if (kind.endsWith('_created') && createdAtMs !== null) return createdAtMs
  return readTime(webhook.updated_at) ?? readTime(webhook.timestamp) ?? createdAtMs
}

/** For a webhook's key, which must not depend on the time of receipt. */
function keyTimeOf(webhook: ChatFields, kind: string): number | null {
  try {
    return statedTimeOf(webhook, kind)
  } catch (error) {
    if (error instanceof InvalidEvent) return null
    throw error
  }
}

/**
 * Before 2025 (Chatwoot PR #10873) a conversation had no `updated_at`, only the second of its last activity, `timestamp`. Updates in
 * the same second are ordered by their arrival. The time of the event does not use the arrival, because an event in flight during an
 * erasure happened before it.
 */
function stateTime(conversation: ChatFields, receivedAtMs: number): number | null {
  const updatedAtMs = readTime(conversation.updated_at)
  const activeAtMs = readTime(conversation.timestamp)
  if (updatedAtMs !== null || activeAtMs === null) return updatedAtMs
  return Math.max(activeAtMs, Math.min(receivedAtMs, activeAtMs + 999))
}
