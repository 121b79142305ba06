const INT64_MAX = 9_223_372_036_854_775_807n

/**
 * An id from a path: the decimal digits of an int64, as this service writes them (no sign, no leading zero).
 * Anything else names nothing: null, which callers answer as 404.
 */
export function parsePathId(text: string): bigint | null {
  if (!/^(0|[1-9]\d{0,18})$/.test(text)) return null
  const id = BigInt(text)
  return id <= INT64_MAX ? id : null
}
