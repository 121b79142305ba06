/** The people who may sign in to the console, for operators. */
import { refuseInput } from '../http/validate.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { OrganizationIds, Role } from './actor.ts'
import { HAS_JOINED } from './sign-in.ts'

/** RFC 5321 */
const EMAIL_MAX_LENGTH = 254

type OperatorSummary = {
  id: bigint
  email: string
  name: string | null
  role: Role
  organizationIds: OrganizationIds
  status: 'active' | 'disabled'
  hasPassword: boolean
  /** end of an invitation that was not accepted; null: none is open */
  invitedUntil: string | null
  createdAt: string
  signedInAt: string | null
}

/** $1 organization ids bigint[], null: all. Somebody of some organizations sees the operators of these organizations alone. */
const selectOperators = statement('select-operators')`
    select id, email, name, role, organization_ids as "organizationIds", status, password_hash is not null as "hasPassword",
           iso(case when invitation_expires_at > now() then invitation_expires_at end) as "invitedUntil",
           iso(created_at) as "createdAt",
           iso(signed_in_at) as "signedInAt"
      from operator
     where $1::bigint[] is null or organization_ids <@ $1
     order by id`

export function listOperators(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<OperatorSummary[]> {
  return database.query(selectOperators, [organizationIds])
}

/** $1 whether only operators who have joined count boolean */
export const selectFullOwner = statement('select-owner-of-all')`
    select id from operator
     where role = 'owner' and organization_ids is null and status = 'active' and (not $1 or ${HAS_JOINED}) limit 1`

/** Whether an operator can manage all organizations, perhaps after accepting the invitation, so that the console needs no CONSOLE_TOKEN. */
export async function hasOwner(database: Queryable): Promise<boolean> {
  return (await database.query(selectFullOwner, [false])).length > 0
}

/** Throws `invalid_input`, also for invisible characters, with which two addresses look the same. Addresses are compared in lower case. */
export function readEmail(text: string): string {
  const email = text.trim().toLowerCase()
  if (email.length > EMAIL_MAX_LENGTH || !/^[^\s\p{C}@,;<>"()]+@[^\s\p{C}@,;<>"()]+$/u.test(email))
    refuseInput('email', 'must be an email address')
  return email
}
