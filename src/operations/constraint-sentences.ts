/** Messages for violated constraints. Users do not know the names of constraints. */
import { AppError } from '../errors.ts'
import { sqlStateOf, violatedConstraint, violatedKey } from '../postgres/faults.ts'

interface Constraint {
  /** the field of the console's request that has the refused value; empty: none in particular */
  field: string
  /** @param ids the values of a foreign key; empty if the database does not report them */
  text: (ids: string[]) => string
  hint?: string
}

/** What operators can violate: foreign keys, unique indexes, constraint triggers, and `retire_addresses`. Schemas exclude the rest. */
export const CONSTRAINTS: Record<string, Constraint> = {
  official_account_organization_id_fkey: missing('organization'),
  official_account_channel: {
    ...taken('channelId', 'another account of the organization already has this channel id.'),
    hint: 'Run "oa-audience accounts list" to see it.',
  },
  official_account_oa_hash_key: taken(
    'oaHash',
    'another account already has this oa_hash. Choose another one, or omit it to get a random one.',
  ),
  official_account_tracking_key_key: taken(
    'trackingKey',
    'another account already has this tracking key. Choose another one, or omit it to get a random one.',
  ),
  official_account_oa_hash_retired: taken(
    'oaHash',
    'this oa_hash was in use before, and a support chat may still call it. Choose another one, or omit it to get a random one.',
  ),
  official_account_tracking_key_retired: taken(
    'trackingKey',
    'this tracking key was in use before, and web pages may still have it. Choose another one, or omit it to get a random one.',
  ),
  api_key_api_client_id_fkey: missing('client'),
  audience_member_external_id: taken(
    'externalId',
    'another member of the account already has this externalId.',
  ),
  endpoint_channel_oa_id_fkey: missing('account'),
  endpoint_max_per_account: {
    ...taken('', 'the account already has 20 endpoints, which is the limit. Remove one that nobody needs.'),
    hint: 'Run "oa-audience endpoints list --account ID" to see them.',
  },
  segment_channel_oa_id_fkey: missing('account'),
  segment_name: taken('name', 'the account already has a segment with this name.'),
  segment_max_per_account: {
    ...taken('', 'the account already has 100 segments, which is the limit. Remove one that nobody needs.'),
    hint: 'Run "oa-audience segments list --account ID" to see them.',
  },
}

/** Another program inserts rows with explicit ids at the same time. */
const ID_TAKEN: Constraint = {
  ...taken('', 'another row already has the next id.'),
  hint: 'Run the command again.',
}

/** Returns the message for a violated constraint with a hint for the command line, or null for any other error. */
export function constraintSentence(error: unknown): string | null {
  const name = violatedConstraint(error)
  if (name === null) return null
  return (
    sentenceOf(name, violatedKey(error)) ??
    `the database refuses a value of the change (SQLSTATE ${sqlStateOf(error)}).`
  )
}

export function sentenceOf(name: string, ids: string[]): string | null {
  const constraint = constraintOf(name)
  if (constraint === undefined) return null
  return [constraint.text(ids), constraint.hint].filter(Boolean).join(' ')
}

const constraintOf = (name: string): Constraint | undefined =>
  name.endsWith('_pkey') ? ID_TAKEN : Object.hasOwn(CONSTRAINTS, name) ? CONSTRAINTS[name] : undefined

/** Converts a violated constraint to `invalid_input` with the field that has the refused value. Returns any other error as it is. */
export function toInputError(error: unknown): unknown {
  const name = violatedConstraint(error)
  if (name === null) return error
  const constraint = constraintOf(name)
  const message = constraint?.text(violatedKey(error)) ?? 'the database refuses a value of the change.'
  return new AppError('invalid_input', {
    details: [{ path: constraint?.field ?? '', message }],
    cause: error,
  })
}

function missing(noun: string): Constraint {
  return {
    field: noun,
    text: ([id]) => `${id === undefined ? `the ${noun}` : `${noun} ${id}`} does not exist.`,
    hint: `Run "oa-audience ${noun}s list" to see all ${noun}s.`,
  }
}

function taken(field: string, text: string): Constraint {
  return { field, text: () => text }
}
