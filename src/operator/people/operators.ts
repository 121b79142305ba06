/**
 * The people who may sign in to the console. An operator is invited by a link, valid once and for 24 h, and chooses a password there.
 * A change takes effect with the operator's next request, because every request reads the operator.
 */
import { randomBytes } from 'node:crypto'
import { AppError, requireVisible } from '../../errors.ts'
import { refuseInput } from '../../http/validate.ts'
import { OPERATORS_LOCK, takeLock } from '../../postgres/locks.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { type Action, changesBetween, type NewActivity, recordActivity } from '../activity.ts'
import { type Actor, includesRole, type OrganizationIds, type Role } from '../actor.ts'
import { endSessionsOf } from './sessions.ts'
import { HAS_JOINED, hashOfInvitation } from './sign-in.ts'

/** RFC 5321 */
const EMAIL_MAX_LENGTH = 254
const INVITATION_BYTES = 32

export interface OperatorFields {
  name: string | null
  role: Role
  organizationIds: OrganizationIds
}

export type OperatorSummary = {
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
           to_char(case when invitation_expires_at > now() then invitation_expires_at end at time zone 'UTC',
                   'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "invitedUntil",
           to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
           to_char(signed_in_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "signedInAt"
      from operator
     where $1::bigint[] is null or organization_ids <@ $1
     order by id`

export function listOperators(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<OperatorSummary[]> {
  return database.query(selectOperators, [organizationIds])
}

/** An operator with the token of the invitation link. */
export interface Invited {
  id: bigint
  /** shown once; only its hash is stored */
  invitation: string
}

/** $1 email text, $2 name text or null, $3 role text, $4 organization ids bigint[] or null, $5 invitation_hash bytea */
const insertOperator = statement('insert-operator')`
    insert into operator (email, name, role, organization_ids, invitation_hash, invitation_expires_at)
    values ($1, $2, $3, $4, $5, now() + interval '24 hours')
    returning id`

/** $1 email text, $2 organization ids bigint[], null: all */
const selectVisible = statement('select-visible-operator-by-email')`
    select id from operator where email = $1 and ($2::bigint[] is null or organization_ids <@ $2) limit 1`

/**
 * Throws `invalid_input` for an address that is not one or that an operator has whom the actor sees, and `forbidden` for more than the
 * actor may give. An operator of other organizations with this address changes nothing, so the actor does not learn of them: whoever
 * accepts an invitation first has the address.
 */
export async function addOperator(
  database: Transactions,
  requested: Actor,
  email: string,
  { name, role, organizationIds }: OperatorFields,
): Promise<Invited> {
  const address = readEmail(email)
  const invitation = newInvitation()
  return await changeOperators(database, requested, async (transaction, actor) => {
    requireWithin(actor, organizationIds)
    await requireOrganizations(transaction, organizationIds)
    const visible = await transaction.query(selectVisible, [address, actor.organizationIds])
    if (visible.length > 0)
      refuseInput('email', 'belongs to another operator already: change that one, or invite it again')
    const values = [address, name, role, organizationIds, hashOfInvitation(invitation)]
    const [added] = await transaction.query<{ id: bigint }>(insertOperator, values)
    const { id } = added as { id: bigint }
    await recordActivity(transaction, actor, {
      ...activityOf('operator.added', id, organizationIds),
      changes: { email: [null, address], role: [null, role], organizationIds: [null, organizationIds] },
    })
    return { id, invitation }
  })
}

/**
 * An open invitation ends when its operator is disabled, and when the role or the organizations change: who made the link might not
 * have been allowed to make it for them.
 *
 * $1 operator id bigint, $2 name text or null, $3 role text, $4 organization ids bigint[] or null, $5 status text
 */
const updateFields = statement('update-operator')`
    update operator set name = $2, role = $3, organization_ids = $4, status = $5,
           invitation_hash = case when keeps_invitation then invitation_hash end,
           invitation_expires_at = case when keeps_invitation then invitation_expires_at end
      from (select role = $3 and organization_ids is not distinct from $4::bigint[] and $5 = 'active' as keeps_invitation
              from operator where id = $1) before
     where id = $1`

export type OperatorChanges = Partial<OperatorFields & { status: 'active' | 'disabled' }>

/** Throws NotVisible, and `invalid_input` if nobody could manage operators afterwards. */
export async function updateOperator(
  database: Transactions,
  requested: Actor,
  id: bigint,
  changes: OperatorChanges,
): Promise<void> {
  await changeOperators(database, requested, async (transaction, actor) => {
    const before = await lockOperator(transaction, actor, id)
    const after = { ...before, ...changes }
    requireWithin(actor, after.organizationIds)
    await requireOrganizations(transaction, changes.organizationIds ?? null)
    await transaction.query(updateFields, [id, after.name, after.role, after.organizationIds, after.status])
    if (isFullOwner(before) && !isFullOwner(after)) await requireFullOwner(transaction, before.hasJoined)
    // A disabled operator who is enabled later has to sign in again.
    if (after.status === 'disabled') await endSessionsOf(transaction, id)
    const action =
      after.status === before.status
        ? 'operator.updated'
        : after.status === 'disabled'
          ? 'operator.disabled'
          : 'operator.enabled'
    // The name is a person's, so the log only says that it was changed.
    const { name, ...fields } = changesBetween(before, changes)
    const recorded = name === undefined ? fields : { ...fields, name: 'replaced' }
    if (Object.keys(recorded).length === 0) return
    await recordActivity(transaction, actor, {
      ...activityOf(action, id, after.organizationIds),
      changes: recorded,
    })
  })
}

/** $1 operator id bigint, $2 invitation_hash bytea */
const storeInvitation = statement('store-invitation')`
    update operator set invitation_hash = $2, invitation_expires_at = now() + interval '24 hours' where id = $1`

/** Replaces the open invitation. The password stays until the new one is accepted. Throws NotVisible. */
export async function inviteOperator(database: Transactions, requested: Actor, id: bigint): Promise<Invited> {
  const invitation = newInvitation()
  return await changeOperators(database, requested, async (transaction, actor) => {
    const operator = await lockOperator(transaction, actor, id)
    if (operator.status === 'disabled') refuseInput('status', 'is disabled: enable the operator first')
    await transaction.query(storeInvitation, [id, hashOfInvitation(invitation)])
    await recordActivity(transaction, actor, activityOf('operator.invited', id, operator.organizationIds))
    return { id, invitation }
  })
}

type LockedOperator = {
  email: string
  name: string | null
  role: Role
  organizationIds: OrganizationIds
  status: 'active' | 'disabled'
  hasJoined: boolean
}

/** $1 operator id bigint, $2 organization ids bigint[], null: all */
const selectForUpdate = statement('lock-operator')`
    select email, name, role, organization_ids as "organizationIds", status, ${HAS_JOINED} as "hasJoined"
      from operator where id = $1 and ($2::bigint[] is null or organization_ids <@ $2) for update`

async function lockOperator(
  transaction: Queryable,
  { organizationIds }: Actor,
  id: bigint,
): Promise<LockedOperator> {
  const [operator] = await transaction.query<LockedOperator>(selectForUpdate, [id, organizationIds])
  return requireVisible(operator, 'operator', id)
}

/** $1 operator id bigint */
const selectRights = statement('select-rights-of-operator')`
    select role, organization_ids as "organizationIds" from operator where id = $1 and status = 'active'`

/**
 * Reads again, behind the lock, what the actor may do: another owner may have changed that meanwhile.
 * @param work receives the actor with the organizations of this moment
 */
function changeOperators<T>(
  database: Transactions,
  actor: Actor,
  work: (transaction: Queryable, actor: Actor) => Promise<T>,
): Promise<T> {
  return database.transaction(async (transaction) => {
    await takeLock(transaction, OPERATORS_LOCK)
    if (actor.operatorId === null) return work(transaction, actor)
    type Rights = { role: Role; organizationIds: OrganizationIds }
    const [rights] = await transaction.query<Rights>(selectRights, [actor.operatorId])
    if (rights === undefined || !includesRole(rights.role, 'owner')) throw new AppError('forbidden')
    return work(transaction, { ...actor, organizationIds: rights.organizationIds })
  })
}

const isFullOwner = ({ role, organizationIds, status }: Omit<LockedOperator, 'email' | 'hasJoined'>) =>
  role === 'owner' && organizationIds === null && status === 'active'

/** $1 whether only operators who have joined count boolean */
const selectFullOwner = statement('select-owner-of-all')`
    select id from operator
     where role = 'owner' and organization_ids is null and status = 'active' and (not $1 or ${HAS_JOINED}) limit 1`

/** An owner who has joined does not replace themselves by an invitation, which might never be accepted. */
async function requireFullOwner(transaction: Queryable, hasJoined: boolean): Promise<void> {
  if ((await transaction.query(selectFullOwner, [hasJoined])).length > 0) return
  refuseInput(
    'role',
    'belongs to the last owner of all organizations who can sign in: make another operator an owner first, and let them sign in',
  )
}

/** Whether an operator can manage all organizations, perhaps after accepting the invitation, so that the console needs no CONSOLE_TOKEN. */
export async function hasOwner(database: Queryable): Promise<boolean> {
  return (await database.query(selectFullOwner, [false])).length > 0
}

/** Nobody gives more organizations than they see. */
function requireWithin({ organizationIds: own }: Actor, given: OrganizationIds): void {
  if (own === null) return
  if (given === null || given.some((id) => !own.includes(id)))
    refuseInput('organizationIds', 'contains organizations that you do not manage')
}

/** $1 bigint[] */
const countOrganizations = statement(
  'count-organizations',
)`select count(*)::int from organization where id = any ($1)`

async function requireOrganizations(transaction: Queryable, ids: OrganizationIds): Promise<void> {
  if (ids === null) return
  if (ids.length === 0) refuseInput('organizationIds', 'is empty: choose organizations, or all')
  const [found] = await transaction.query<{ count: number }>(countOrganizations, [ids])
  if (found?.count !== new Set(ids).size)
    refuseInput('organizationIds', 'contains an organization that does not exist')
}

function activityOf(action: Action, id: bigint, organizationIds: OrganizationIds): NewActivity {
  // An operator of several organizations concerns none of them alone.
  const organizationId = organizationIds?.length === 1 ? (organizationIds[0] as bigint) : null
  return { action, object: { kind: 'operator', id }, organizationId }
}

/** Throws `invalid_input`, also for invisible characters, with which two addresses look the same. Addresses are compared in lower case. */
export function readEmail(text: string): string {
  const email = text.trim().toLowerCase()
  if (email.length > EMAIL_MAX_LENGTH || !/^[^\s\p{C}@,;<>"()]+@[^\s\p{C}@,;<>"()]+$/u.test(email))
    refuseInput('email', 'must be an email address')
  return email
}

const newInvitation = () => randomBytes(INVITATION_BYTES).toString('base64url')
