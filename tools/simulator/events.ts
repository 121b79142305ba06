/** Events as LINE's platform makes them. */
import { randomBytes } from 'node:crypto'

const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'

/** A ULID of a given millisecond: ten characters of time, sixteen of chance. */
export function ulid(atMs: number): string {
  let time = ''
  for (let rest = atMs, i = 0; i < 10; i += 1, rest = Math.floor(rest / 32))
    time = CROCKFORD[rest % 32] + time
  const chance = [...randomBytes(16)].map((byte) => CROCKFORD[byte % 32]).join('')
  return time + chance
}

/** U and 32 hex digits, as LINE's user ids are. */
export function randomUserId(): string {
  return `U${randomBytes(16).toString('hex')}`
}

/** Fields of one event; whatever is given replaces or completes the common ones. */
export function lineEvent(type: string, userId: string | null, fields: Record<string, unknown> = {}) {
  const timestamp = typeof fields.timestamp === 'number' ? fields.timestamp : Date.now()
  return {
    type,
    mode: 'active',
    timestamp,
    webhookEventId: ulid(Math.max(0, timestamp)),
    deliveryContext: { isRedelivery: false },
    ...(userId === null ? {} : { source: { type: 'user', userId } }),
    ...fields,
  }
}

/** 18 digits that grow with time, as LINE's do. */
export function messageId(): string {
  return `${Date.now()}${String(randomBytes(4).readUInt32BE() % 100_000).padStart(5, '0')}`
}

export function textMessage(userId: string, text: string, fields: Record<string, unknown> = {}) {
  const message = { type: 'text', id: messageId(), text }
  return { ...lineEvent('message', userId, { message, ...fields }), message }
}

/** A delivery body as LINE writes it: every character beyond ASCII escaped. */
export function lineBody(destination: string, events: unknown[]): string {
  return JSON.stringify({ destination, events }).replace(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
