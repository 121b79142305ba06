/** Formats a period in a unit that keeps its precision: `90 s`, `45 min`, `20 h`, `3 days`. */
export function age(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`
}

/** Ids are bigints, which JSON.stringify refuses, so they become decimal strings. */
export const toJson = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner))
