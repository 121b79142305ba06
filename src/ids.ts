/** Ids that every room uses. They are bigints, because those of PostgreSQL exceed what a number keeps. */
export type AccountId = bigint
export type OrganizationId = bigint

/** LINE gives one person the same id at all accounts of one provider. Other programs and pages may use ids of another form. */
export const LINE_USER_ID = /^U[0-9a-f]{32}$/

/** Ids are bigints, which JSON.stringify refuses, so they become decimal strings. */
export const toJson = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner))
