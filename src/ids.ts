/** Ids that every room uses. They are bigints, because those of PostgreSQL exceed what a number keeps. */
export type AccountId = bigint
export type OrganizationId = bigint

/** A person's id at LINE. */
export const LINE_USER_ID = /^U[0-9a-f]{32}$/
