/** Returns milliseconds since 1970, or NaN. A text without a time zone is UTC. */
export function parseTimeText(text: string): number {
  // Without a year, Date.parse would guess one.
  if (!/\d{4}/.test(text)) return Number.NaN
  const hasZone = /(Z|UTC|GMT|:\d\d(\.\d+)? ?[+-]\d\d:?\d\d)$/i.test(text) || /^\d{4}-\d\d-\d\d$/.test(text)
  if (hasZone) return Date.parse(text)
  // PostgreSQL omits the minutes of a zone.
  const hours = /^(.*:\d\d(?:\.\d+)?)([+-]\d\d)$/.exec(text)
  return Date.parse(hours ? `${hours[1]?.replace(' ', 'T')}${hours[2]}:00` : `${text.replace(' ', 'T')}Z`)
}

/** Converts seconds or milliseconds to milliseconds. 1e11 is the year 5138 in seconds, and 1973 in milliseconds. */
export const epochMs = (time: number): number => (time > 1e11 ? time : Math.round(time * 1000))
