/** JSON text for operators. Ids are bigints, and JSON has no such numbers, so they are decimal strings. */
export const toJson = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner))
