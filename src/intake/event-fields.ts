/** Fields that events of all sources have, read from parsed JSON. */

import { setImmediate } from 'node:timers/promises'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { isStorableText } from '../postgres/storable.ts'
import { InvalidEvent, KIND_MAX_LENGTH } from './event.ts'

/** End of the year 9999. Later times have no ISO 8601 form with a four-digit year. */
const TIME_MAX_MS = 253_402_300_799_999
/** Characters. LINE's message ids have 18 digits, its group ids 33 characters. */
const ID_MAX_LENGTH = 64

/** Returns null if there is no user id. Throws InvalidEvent for a value that cannot be one. */
export function readUserId(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'string') throw new InvalidEvent('the user id is not a string')
  if (value === '') throw new InvalidEvent('the user id is empty')
  if (value.length > USER_ID_MAX_LENGTH) {
    throw new InvalidEvent(`the user id is longer than ${USER_ID_MAX_LENGTH} characters`)
  }
  if (!isStorableText(value)) throw new InvalidEvent('the user id has characters that cannot be stored')
  return value
}

/** Returns whole milliseconds since 1970. Throws InvalidEvent for anything else. */
export function readTimeMs(value: unknown): number {
  if (typeof value !== 'number' || !(value >= 0 && value <= TIME_MAX_MS)) {
    throw new InvalidEvent('the time is not a number of milliseconds between the years 1970 and 9999')
  }
  return Math.trunc(value)
}

/** The id of a message, group or room, or null for anything that cannot be one. */
export function readOptionalId(value: unknown): string | null {
  if (typeof value !== 'string' || value === '' || value.length > ID_MAX_LENGTH) return null
  return isStorableText(value) ? value : null
}

/** Returns the kind in a storable form. Any value is accepted, because every event is stored. */
export function readKind(value: unknown): string {
  if (typeof value !== 'string' || value === '') return 'unknown'
  return value.toWellFormed().replaceAll('\0', '').slice(0, KIND_MAX_LENGTH).toWellFormed() || 'unknown'
}

/** Levels of arrays and objects. Senders use about ten. JSON.stringify and many receivers of events fail at about 4,000. */
const MAX_LEVELS = 512
/** Characters. Each level takes two characters, so a shorter text cannot be nested too deeply. */
export const SHALLOW_TEXT_LENGTH = 2 * MAX_LEVELS

export const TOO_DEEP = `the event is nested deeper than ${MAX_LEVELS} levels`

export function isTooDeep(value: unknown, levels = MAX_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  const fields: unknown[] = Array.isArray(value) ? value : Object.values(value)
  for (const field of fields) if (isTooDeep(field, levels - 1)) return true
  return false
}

/** Returns a copy in which null replaces values that are nested deeper than MAX_LEVELS. */
export function cutDeep(value: unknown, levels = MAX_LEVELS): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (levels === 0) return null
  if (Array.isArray(value)) return value.map((element) => cutDeep(element, levels - 1))
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, cutDeep(field, levels - 1)]))
}

// Lets other requests proceed while the events of a large request are read.

/** Other requests wait this long. Most requests are read in less than 0.1 ms. */
const TURN_MAX_MS = 2

export class ReadingTurns {
  #startedAtMs = performance.now()

  isOver(): boolean {
    return performance.now() - this.#startedAtMs > TURN_MAX_MS
  }

  async next(): Promise<void> {
    await setImmediate()
    this.#startedAtMs = performance.now()
  }
}
