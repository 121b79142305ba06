export const INT64_MIN = -9_223_372_036_854_775_808n
export const INT64_MAX = 9_223_372_036_854_775_807n

/** Reads an int64 as this service writes it: without a plus sign or leading zeros. Null, which is a 404: any other text. */
export function parsePathId(text: string): bigint | null {
  if (!/^(0|-?[1-9]\d{0,18})$/.test(text)) return null
  const id = BigInt(text)
  return id >= INT64_MIN && id <= INT64_MAX ? id : null
}
