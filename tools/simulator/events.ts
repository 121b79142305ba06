/** Events and deliveries as LINE's platform writes them. */
import { randomBytes, randomInt } from 'node:crypto'
import { ulid as makeUlid, TIME_MAX } from 'ulid'

/** The library's own random source makes one call to the system per character: 30 µs per id instead of 1 µs. */
const randomFraction = () => randomInt(256) / 256

/** A ULID of the given millisecond, or of the nearest one that a ULID can hold. The library reads 0 as "now". */
export function ulid(atMs: number): string {
  return makeUlid(Math.min(Math.max(1, Math.trunc(atMs)), TIME_MAX), randomFraction)
}

/** U and 32 hex digits, like LINE's user ids. */
export function randomUserId(): string {
  return `U${randomBytes(16).toString('hex')}`
}

/** One event. The given fields are added to the common ones or replace them. */
export function lineEvent(type: string, userId: string | null, fields: Record<string, unknown> = {}) {
  const timestamp = typeof fields.timestamp === 'number' ? fields.timestamp : Date.now()
  return {
    type,
    mode: 'active',
    timestamp,
    webhookEventId: ulid(timestamp),
    deliveryContext: { isRedelivery: false },
    ...(userId === null ? {} : { source: { type: 'user', userId } }),
    ...fields,
  }
}

/** 18 digits that grow with time, like LINE's message ids. */
export function messageId(): string {
  return `${Date.now()}${String(randomInt(100_000)).padStart(5, '0')}`
}

export function textMessage(userId: string, text: string, fields: Record<string, unknown> = {}) {
  const message = { type: 'text', id: messageId(), text }
  return { ...lineEvent('message', userId, { message, ...fields }), message }
}

/** A delivery body. Like LINE, it escapes every character beyond ASCII. */
export function lineBody(destination: string, events: unknown[]): string {
  return JSON.stringify({ destination, events }).replace(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
