export const INT64_MIN = -9_223_372_036_854_775_808n
const INT64_MAX = 9_223_372_036_854_775_807n

/**
 * An id from a path: an int64 as this service writes them, in decimal digits without a plus or leading zeros.
 * Anything else names nothing: null, which callers answer as 404.
 */
export function parsePathId(text: string): bigint | null {
  if (!/^(0|-?[1-9]\d{0,18})$/.test(text)) return null
  const id = BigInt(text)
  return id >= INT64_MIN && id <= INT64_MAX ? id : null
}
