/** JSON text for operators. Ids are bigints, which JSON.stringify refuses, so they become decimal strings. */
export const toJson = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner))
