/** Bounds how deeply events are nested. */

/**
 * Levels of arrays and objects. Senders use about ten. JSON.stringify fails at some 4,000, and so do programs that read stored events
 * and forwarded ones.
 */
const MAX_LEVELS = 512
/** Characters. Each level takes two, so a shorter text cannot be nested too deeply. */
export const SHALLOW_TEXT_LENGTH = 2 * MAX_LEVELS

/** Why an event that is nested too deeply has no effect. */
export const TOO_DEEP = `the event is nested deeper than ${MAX_LEVELS} levels`

/** Whether a parsed value is nested deeper than MAX_LEVELS. */
export function isTooDeep(value: unknown, levels = MAX_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  const fields: unknown[] = Array.isArray(value) ? value : Object.values(value)
  for (const field of fields) if (isTooDeep(field, levels - 1)) return true
  return false
}

/** A copy with null instead of everything that is nested deeper than MAX_LEVELS. */
export function cutDeep(value: unknown, levels = MAX_LEVELS): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (levels === 0) return null
  if (Array.isArray(value)) return value.map((element) => cutDeep(element, levels - 1))
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, cutDeep(field, levels - 1)]))
}
