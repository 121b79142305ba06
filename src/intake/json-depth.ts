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
