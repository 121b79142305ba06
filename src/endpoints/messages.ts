/** Messages to receivers, with their signatures. */
import { createHmac, randomBytes } from 'node:crypto'
import { type Secret, secretOrNull } from '../config/secret.ts'
import type { SecretKeys } from '../config/secret-keys.ts'
import { isObject } from '../http/body.ts'
import type { LeasedDelivery } from '../intake/flush.ts'
import { signLine } from '../line-api/line-signature.ts'
import type { ContentRow, EndpointRow } from './backlog.ts'
import type { Contents } from './contents.ts'
import type { Message, OpenMessage } from './post.ts'

export const MEMBER_EVENTS = ['member.created', 'member.updated', 'member.erased', 'account.verified']

/** Prefix of secrets in Standard Webhooks. */
const SECRET_PREFIX = 'whsec_'
const SECRET_BYTES = 32
export const JSON_TYPE = 'application/json; charset=utf-8'

/** What a message is made of. */
export type Content = Pick<
  ContentRow,
  | 'channel_oa_id'
  | 'endpoint_id'
  | 'format'
  | 'replies'
  | 'repliesTo'
  | 'secret'
  | 'previous_secret'
  | 'channel_secret'
  | 'destination'
  | 'attempts'
  | 'type'
  | 'events'
  | 'data'
>

/**
 * Returns null if there is nothing to send, or no secret to sign with. Throws UnreadableSecret.
 * @param id of the message, the same in every attempt
 */
export function writeMessage(keys: SecretKeys, content: Content, id: string, nowMs: number): Message | null {
  return content.format === 'line' ? writeLine(keys, content) : writeMembers(keys, content, id, nowMs)
}

/** Contains the time, because ids and change numbers are reused after a restore. Receivers ignore ids that they have seen. */
export const messageIdOf = ({ id, change, created_ms }: ContentRow): string =>
  `msg_${id}_${change ?? 0}_${created_ms}`

/** Builds a delivery in LINE's format, with the events as LINE sent them. */
function writeLine(
  keys: SecretKeys,
  { channel_oa_id, channel_secret, destination, events, replies, repliesTo, attempts }: Content,
): Message | null {
  const secret = secretOrNull(keys.decrypt('official_account.channel_secret', channel_oa_id, channel_secret))
  if (events === null || secret === null) return null
  const isRetry = attempts > 1
  const mayReply = (index: number) => replies && (repliesTo?.[index] ?? true)
  const isAsSent = replies && repliesTo === null && !isRetry
  const written = isAsSent ? `[${events}]` : rewrite(`[${events}]`, mayReply, isRetry)
  const body = `{"destination":${JSON.stringify(destination ?? '')},"events":${written}}`
  return {
    headers: {
      'content-type': JSON_TYPE,
      'user-agent': 'LineBotWebhook/2.0',
      'x-line-signature': signLine(body, secret),
    },
    body,
  }
}

/** An endpoint that may not reply receives events in standby mode without reply tokens, as with LINE's module channels. */
function rewrite(text: string, mayReply: (index: number) => boolean, isRetry: boolean): string {
  const events = JSON.parse(text) as unknown[]
  for (const [index, event] of events.entries()) {
    if (!isObject(event)) continue
    if (!mayReply(index)) {
      event.mode = 'standby'
      delete event.replyToken
    }
    if (isRetry) {
      const context = isObject(event.deliveryContext) ? event.deliveryContext : {}
      event.deliveryContext = { ...context, isRedelivery: true }
    }
  }
  return JSON.stringify(events)
}

/** Builds a message about a member, which may no longer exist. */
function writeMembers(
  keys: SecretKeys,
  { endpoint_id, type, data, secret, previous_secret }: Content,
  id: string,
  nowMs: number,
): Message | null {
  const current = secretOrNull(keys.decrypt('endpoint.secret', endpoint_id, secret))
  const previous = secretOrNull(keys.decrypt('endpoint.previous_secret', endpoint_id, previous_secret))
  if (data === null || current === null) return null
  const secrets = previous === null ? [current] : [current, previous]
  return standardMessage({ id, type: type ?? '', data, atMs: nowMs }, secrets, nowMs)
}

/**
 * A message of Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks
 * @param nowMs of the attempt
 */
export function standardMessage(
  { id, type, data, atMs }: { id: string; type: string; data: string; atMs: number },
  secrets: Secret[],
  nowMs: number,
): Message {
  const body = `{"type":"${type}","timestamp":"${new Date(atMs).toISOString()}","data":${data}}`
  const timestamp = String(Math.floor(nowMs / 1000))
  const signatures = secrets.map((secret) => `v1,${signStandard(`${id}.${timestamp}.${body}`, secret)}`)
  return {
    headers: {
      'content-type': JSON_TYPE,
      'user-agent': 'oa-audience',
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signatures.join(' '),
    },
    body,
  }
}

/** Returns base64 of HMAC-SHA256 over `id.timestamp.body`. */
export function signStandard(text: string, secret: Secret): string {
  const key = secret.reveal()
  const bytes = Buffer.from(key.startsWith(SECRET_PREFIX) ? key.slice(SECRET_PREFIX.length) : key, 'base64')
  return createHmac('sha256', bytes).update(text).digest('base64')
}

/** Returns a secret in the format of Standard Webhooks. */
export const newSecret = (): string => `${SECRET_PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`

/** What an attempt has read. */
export interface ReadContent {
  /** The change number that was read last. Null: the delivery has none. */
  change: bigint | null
  /** When the content was read, the delivery existed, and its endpoint was as when the connection was opened. */
  isCurrent: boolean
  /** Events of the delivery, 1 for a change of a member. Null: the content was not read. */
  events: number | null
  /** Time spent on reads from the database. */
  waitedMs: number
}

/** Reads the content of an attempt and builds the message. Null: there is nothing to send. */
export async function openMessage(
  secretKeys: SecretKeys,
  contents: Pick<Contents, 'read'>,
  { endpoint, delivery, isProven }: { endpoint: EndpointRow; delivery: LeasedDelivery; isProven: boolean },
  read: ReadContent,
): Promise<OpenMessage | null> {
  const startedAtMs = performance.now()
  const content = await contents.read(delivery, isProven)
  read.waitedMs += performance.now() - startedAtMs
  read.isCurrent = content !== undefined && isSame(endpoint, content.row)
  read.change = content?.row.change ?? null
  if (content === undefined) return null
  const { row, release, whenLost } = content
  read.events = row.event_count ?? 1
  let message: Message | null = null
  try {
    if (read.isCurrent) message = writeMessage(secretKeys, row, messageIdOf(row), Date.now())
  } finally {
    // Also if the message cannot be built: erasures would wait until the session ends.
    if (message === null) release()
  }
  return message && { message, release, whenLost }
}

const isSame = (endpoint: EndpointRow, now: ContentRow): boolean =>
  now.status === 'active' &&
  now.url === endpoint.url &&
  now.allow_private_network === endpoint.allow_private_network
