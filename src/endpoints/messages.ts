import { createHmac, randomBytes } from 'node:crypto'
import { type Secret, secretOrNull } from '../config/secret.ts'
import type { SecretKeys } from '../config/secret-keys.ts'
import { isObject } from '../http/body.ts'
import { signLine } from '../intake/line/line-signature.ts'
import type { ContentRow } from './backlog.ts'
import type { Message } from './post.ts'

export const MEMBER_EVENTS = ['member.created', 'member.updated', 'member.erased', 'account.verified']

/** Prefix of secrets in Standard Webhooks. */
const SECRET_PREFIX = 'whsec_'
const SECRET_BYTES = 32

export interface LineContent {
  format: 'line'
  destination: string | null
  /** The events as LINE sent them: JSON texts, separated by commas. */
  events: string | null
  channelSecret: Secret | null
  /** The endpoint may use reply tokens. */
  replies: boolean
  isRetry: boolean
}

export interface MembersContent {
  format: 'members'
  /** Id of the message, the same in every attempt. */
  id: string
  type: string
  /** JSON text. Null: the member no longer exists. */
  data: string | null
  /** Null: nothing can be sent. */
  secret: Secret | null
  previousSecret: Secret | null
}

export type Content = LineContent | MembersContent

export function contentOf(keys: SecretKeys, row: ContentRow): Content {
  if (row.format === 'line') {
    return {
      format: 'line',
      destination: row.destination,
      events: row.events,
      channelSecret: channelSecretOf(keys, row),
      replies: row.replies,
      isRetry: row.attempts > 1,
    }
  }
  return {
    format: 'members',
    // Contains the time, because ids and change numbers are reused after a restore. Receivers ignore ids that they have seen.
    id: `msg_${row.id}_${row.change ?? 0}_${row.created_ms}`,
    type: row.type ?? '',
    data: row.data,
    ...endpointSecrets(keys, row.endpoint_id, row),
  }
}

/** Throws UnreadableSecret. */
export function channelSecretOf(
  keys: SecretKeys,
  row: { channel_oa_id: bigint; channel_secret: string | null },
): Secret | null {
  return secretOrNull(keys.decrypt('official_account.channel_secret', row.channel_oa_id, row.channel_secret))
}

/** Throws UnreadableSecret. */
export function endpointSecrets(
  keys: SecretKeys,
  endpointId: bigint,
  row: { secret: string | null; previous_secret: string | null },
): Pick<MembersContent, 'secret' | 'previousSecret'> {
  return {
    secret: secretOrNull(keys.decrypt('endpoint.secret', endpointId, row.secret)),
    previousSecret: secretOrNull(keys.decrypt('endpoint.previous_secret', endpointId, row.previous_secret)),
  }
}

export function writeMessage(content: Content, nowMs: number): Message | null {
  switch (content.format) {
    case 'line':
      return writeLine(content)
    case 'members':
      return writeMembers(content, nowMs)
  }
}

/** Builds a delivery in LINE's format. Returns null without events or a channel secret. */
function writeLine({ destination, events, channelSecret, replies, isRetry }: LineContent): Message | null {
  if (events === null || channelSecret === null) return null
  const written = replies && !isRetry ? `[${events}]` : rewrite(`[${events}]`, replies, isRetry)
  const body = `{"destination":${JSON.stringify(destination ?? '')},"events":${written}}`
  return {
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'user-agent': 'LineBotWebhook/2.0',
      'x-line-signature': signLine(body, channelSecret),
    },
    body,
  }
}

/** An endpoint that may not reply receives events in standby mode without reply tokens, as with LINE's module channels. */
function rewrite(text: string, replies: boolean, isRetry: boolean): string {
  const events = JSON.parse(text) as unknown[]
  for (const event of events) {
    if (!isObject(event)) continue
    if (!replies) {
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

/** Builds a message about a member. Returns null if there is nothing to send, or no secret to sign with. */
function writeMembers(
  { id, type, data, secret, previousSecret }: MembersContent,
  nowMs: number,
): Message | null {
  if (data === null || secret === null) return null
  const body = `{"type":"${type}","timestamp":"${new Date(nowMs).toISOString()}","data":${data}}`
  const keys = [secret, previousSecret].filter((key) => key !== null)
  return { headers: standardHeaders(id, body, keys, nowMs), body }
}

/** The headers of Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks */
export function standardHeaders(
  id: string,
  body: string,
  keys: Secret[],
  nowMs: number,
): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1000))
  const signatures = keys.map((key) => `v1,${signStandard(`${id}.${timestamp}.${body}`, key)}`)
  return {
    'content-type': 'application/json; charset=utf-8',
    'user-agent': 'oa-audience',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
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
