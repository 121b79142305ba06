/** Messages for violated constraints. Users do not know the names of constraints. */
import { sqlStateOf, violatedConstraint, violatedKey } from '../postgres/faults.ts'

/** @param ids the values of a foreign key; empty if the database does not report them */
type Sentence = (ids: string[]) => string

/** Every foreign key, unique index and check of the tables that commands write. */
export const CONSTRAINT_SENTENCES: Record<string, Sentence> = {
  organization_pkey: () => idTaken('organization'),

  official_account_pkey: () => idTaken('account'),
  official_account_id_organization_id_key: () => idTaken('account'),
  official_account_organization_id_fkey: ([id]) => missing('organization', id),
  official_account_channel: () =>
    'another account of the organization already has this channel id. Run "oa-audience accounts list" to see it.',
  official_account_oa_hash_key: () =>
    'another account already has this oa_hash. Choose another one, or omit it to get a random one.',
  official_account_tracking_key_key: () =>
    'another account already has this tracking key. Choose another one, or omit it to get a random one.',

  api_client_pkey: () => idTaken('client'),
  api_client_client_id_key: () => 'another client already has this client id. Run the command again.',

  api_key_pkey: () => idTaken('key'),
  api_key_api_client_id_fkey: ([id]) => missing('client', id),
  api_key_api_client_id_key_key: () => 'the client already has this key. Run the command again.',

  audience_member_pkey: () => idTaken('member'),
  audience_member_account: ([accountId, organizationId]) =>
    accountId === undefined || organizationId === undefined
      ? 'the account does not exist in this organization. Run "oa-audience accounts list" to see all accounts.'
      : `organization ${organizationId} has no account ${accountId}. Run "oa-audience accounts list" to see all accounts.`,
  audience_member_user: () => 'the account already has a member with this user id.',
  audience_member_external_id: () => 'another member of the account already has this externalId.',
  audience_member_id: () => 'a member cannot have the smallest 64-bit integer as its id.',
  audience_member_relationship_check: () => 'a relationship is following, blocked or unknown.',

  endpoint_pkey: () => idTaken('endpoint'),
  endpoint_channel_oa_id_fkey: ([id]) => missing('account', id),
  endpoint_replies: () =>
    'another endpoint of the account already receives the reply tokens. Remove that endpoint, or omit --replies.',
  endpoint_format_check: () => 'the format of an endpoint is line or members.',
}

/** Returns the message for a violated constraint, or null for any other error. */
export function constraintSentence(error: unknown): string | null {
  const name = violatedConstraint(error)
  if (name === null) return null
  const sentence = Object.hasOwn(CONSTRAINT_SENTENCES, name) ? CONSTRAINT_SENTENCES[name] : undefined
  if (sentence !== undefined) return sentence(violatedKey(error))
  return `the database refuses a value of the change (SQLSTATE ${sqlStateOf(error)}).`
}

function missing(noun: string, id: string | undefined): string {
  const subject = id === undefined ? `the ${noun}` : `${noun} ${id}`
  return `${subject} does not exist. Run "oa-audience ${noun}s list" to see all ${noun}s.`
}

/** Another program inserts rows with explicit ids at the same time. */
function idTaken(noun: string): string {
  return `another ${noun} already has the next id. Run the command again.`
}
