const UNITS = { second: 's', minute: 'min', hour: 'h', day: 'days' } as const

/** Formats a period in a unit that keeps its precision: `90 s`, `45 min`, `20 h`, `3 days`. */
export function age(seconds: number): string {
  const [count, unit] = periodOf(seconds)
  return `${count} ${UNITS[unit]}`
}

export function periodOf(seconds: number): [count: number, unit: keyof typeof UNITS] {
  if (seconds < 120) return [Math.round(seconds), 'second']
  if (seconds < 7200) return [Math.round(seconds / 60), 'minute']
  return seconds < 172_800 ? [Math.round(seconds / 3600), 'hour'] : [Math.round(seconds / 86_400), 'day']
}

/** Ids are bigints, which JSON.stringify refuses, so they become decimal strings. */
export const toJson = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner))
