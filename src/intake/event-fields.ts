/** Fields that events of all sources have, read from parsed JSON. */
import { USER_ID_MAX_LENGTH } from '../audience/member.ts'
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
