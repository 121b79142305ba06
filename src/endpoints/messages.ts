/** Messages to endpoints, with their signatures. */
import { createHmac, randomBytes } from 'node:crypto'
import { type Secret, secretOrNull } from '../config/secret.ts'
import type { SecretKeys } from '../config/secret-keys.ts'
import { isObject } from '../http/body.ts'
import { signLine } from '../line-api/line-signature.ts'
import type { Row } from '../postgres/statement.ts'
import type { Message } from './post.ts'

/** Prefix of secrets in Standard Webhooks. */
const SECRET_PREFIX = 'whsec_'
const SECRET_BYTES = 32
export const JSON_TYPE = 'application/json; charset=utf-8'

export interface Content extends Row {
  /** the same in every attempt */
  message_id: string
  channel_oa_id: bigint
  endpoint_id: bigint
  format: 'line' | 'members'
  /** Reply tokens were the endpoint's when the events were received, and it still may have them. */
  replies: boolean
  /** for each of `events` whether its token was; null: for all */
  repliesTo: boolean[] | null
  secret: string | null
  previous_secret: string | null
  channel_secret: string | null
  destination: string | null
  attempts: number
  type: string | null
  /** JSON texts, separated by commas, without erased and unsent content */
  events: string | null
  data: string | null
}

/** An operator can add the secret, so the delivery is tried again. */
export class MissingSecret extends Error {}

/** Returns null if there is nothing to send. Throws MissingSecret and UnreadableSecret. */
export const writeMessage = (keys: SecretKeys, content: Content, nowMs: number): Message | null =>
  content.format === 'line' ? writeLine(keys, content) : writeMembers(keys, content, nowMs)

function writeLine(
  keys: SecretKeys,
  { channel_oa_id, channel_secret, destination, events, replies, repliesTo, attempts }: Content,
): Message | null {
  if (events === null) return null
  const secret = secretOrNull(keys.decrypt('official_account.channel_secret', channel_oa_id, channel_secret))
  if (secret === null) throw new MissingSecret('the account has no channel secret to sign with')
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

/** LINE's OpenAPI document requires a reply token in these kinds. SDKs that are generated from it refuse an event without one. */
const WITH_TOKEN = ['follow', 'join', 'memberJoined', 'videoPlayComplete', 'beacon', 'membership']
/** LINE's own, of which no reply is accepted. */
const DUMMY_TOKEN = '0'.repeat(32)

/** An endpoint that may not reply receives events in standby mode without valid reply tokens, as with LINE's module channels. */
function rewrite(text: string, mayReply: (index: number) => boolean, isRetry: boolean): string {
  const events = JSON.parse(text) as unknown[]
  for (const [index, event] of events.entries()) {
    if (!isObject(event)) continue
    if (!mayReply(index)) {
      event.mode = 'standby'
      if (WITH_TOKEN.includes(event.type as string)) event.replyToken = DUMMY_TOKEN
      else delete event.replyToken
    }
    if (isRetry) {
      const context = isObject(event.deliveryContext) ? event.deliveryContext : {}
      event.deliveryContext = { ...context, isRedelivery: true }
    }
  }
  return JSON.stringify(events)
}

function writeMembers(
  keys: SecretKeys,
  { message_id, endpoint_id, type, data, secret, previous_secret }: Content,
  nowMs: number,
): Message | null {
  if (data === null) return null
  const current = secretOrNull(keys.decrypt('endpoint.secret', endpoint_id, secret))
  const previous = secretOrNull(keys.decrypt('endpoint.previous_secret', endpoint_id, previous_secret))
  if (current === null) throw new MissingSecret('the endpoint has no secret to sign with')
  const secrets = previous === null ? [current] : [current, previous]
  return standardMessage({ id: message_id, type: type ?? '', data, atMs: nowMs }, secrets, nowMs)
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

export function signStandard(text: string, secret: Secret): string {
  const key = secret.reveal()
  const bytes = Buffer.from(key.startsWith(SECRET_PREFIX) ? key.slice(SECRET_PREFIX.length) : key, 'base64')
  return createHmac('sha256', bytes).update(text).digest('base64')
}

export const newSecret = (): string => `${SECRET_PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`
