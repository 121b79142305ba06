/**
 * The people who may sign in to the console. An operator is invited by a link, valid once and for 24 h, and chooses a password there.
 * A change takes effect with the operator's next request, because every request reads the operator.
 */
import { randomBytes } from 'node:crypto'
import { AppError, requireVisible } from '../errors.ts'
import { Type } from '../http/typebox.ts'
import { IdText, refuseInput, StorableText } from '../http/validate.ts'
import { changesBetween } from '../operators/activity.ts'
import {
  type Actor,
  includesRole,
  type OrganizationIds,
  ROLES,
  type Role,
  seesAll,
} from '../operators/actor.ts'
import { endSessionsOf } from '../operators/sessions.ts'
import {
  HAS_JOINED,
  hashOfInvitation,
  listOperators,
  readEmail,
  selectFullOwner,
} from '../operators/sign-in.ts'
import { OPERATORS_LOCK, takeLock } from '../postgres/locks.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { Default, orNull, partial } from './fields.ts'
import { type Noun, type Outcome, operationsOf, type Target } from './operation.ts'

const INVITATION_BYTES = 32
const newInvitation = () => randomBytes(INVITATION_BYTES).toString('base64url')

export interface Invited {
  id: bigint
  /** shown once; only its hash is stored */
  invitation: string
}

type Fields = {
  name: string | null
  role: Role
  organizationIds: OrganizationIds
  status: 'active' | 'disabled'
}
type LockedOperator = Fields & {
  id: bigint
  email: string
  hasJoined: boolean
}

const selectForUpdate = statement('lock-operator')`
    select id, email, name, role, organization_ids as "organizationIds", status, ${HAS_JOINED} as "hasJoined"
      from operator where id = $1 and ($2::bigint[] is null or organization_ids <@ $2) for update`

const selectRights = statement('select-rights-of-operator')`
    select role, organization_ids as "organizationIds" from operator where id = $1 and status = 'active'`

/** Reads again, behind the lock, which organizations the actor manages: another owner may have changed that meanwhile. */
async function lockOperators(transaction: Queryable, actor: Actor): Promise<Actor> {
  await takeLock(transaction, OPERATORS_LOCK)
  if (actor.operatorId === null) return actor
  type Rights = { role: Role; organizationIds: OrganizationIds }
  const [rights] = await transaction.query<Rights>(selectRights, [actor.operatorId])
  if (rights === undefined || !includesRole(rights.role, 'owner')) throw new AppError('forbidden')
  return { ...actor, organizationIds: rights.organizationIds }
}

const OPERATOR: Noun<LockedOperator & Target & { by: Actor }> = {
  kind: 'operator',
  word: 'operator',
  plural: 'operators',
  find: async (transaction, requested, id) => {
    const by = await lockOperators(transaction, requested)
    const [locked] = await transaction.query<LockedOperator>(selectForUpdate, [id, by.organizationIds])
    const operator = requireVisible(locked, 'operator', id)
    return { ...operator, by, organizationId: organizationOf(operator.organizationIds) }
  },
}
const { list, add, change } = operationsOf(OPERATOR)

/** An operator of several organizations concerns none of them alone. */
const organizationOf = (ids: OrganizationIds) => (ids?.length === 1 ? (ids[0] as bigint) : null)

/** $1 email text, $2 name text or null, $3 role text, $4 organization ids bigint[] or null, $5 invitation_hash bytea */
const insertOperator = statement('insert-operator')`
    insert into operator (email, name, role, organization_ids, invitation_hash, invitation_expires_at)
    values ($1, $2, $3, $4, $5, now() + interval '24 hours')
    returning id`

const selectVisible = statement('select-visible-operator-by-email')`
    select id from operator where email = $1 and ($2::bigint[] is null or organization_ids <@ $2) limit 1`

/**
 * An open invitation ends when its operator is disabled, and when the role or the organizations change: who made the link might not
 * have been allowed to make it for them.
 */
const updateFields = statement('update-operator')`
    update operator set name = $2, role = $3, organization_ids = $4, status = $5,
           invitation_hash = case when keeps_invitation then invitation_hash end,
           invitation_expires_at = case when keeps_invitation then invitation_expires_at end
      from (select role = $3 and organization_ids is not distinct from $4::bigint[] and $5 = 'active' as keeps_invitation
              from operator where id = $1) before
     where id = $1`

/** $1 operator id bigint, $2 invitation_hash bytea, $3 whether the password stays boolean */
const storeInvitation = statement('store-invitation')`
    update operator set invitation_hash = $2, invitation_expires_at = now() + interval '24 hours',
           password_hash = case when $3 then password_hash end
     where id = $1`

async function invite(transaction: Queryable, id: bigint, keepsPassword: boolean): Promise<Invited> {
  const invitation = newInvitation()
  await transaction.query(storeInvitation, [id, hashOfInvitation(invitation), keepsPassword])
  return { id, invitation }
}

const isFullOwner = ({ role, organizationIds, status }: Fields) =>
  role === 'owner' && organizationIds === null && status === 'active'

/** An owner who has joined does not replace themselves by an invitation, which might never be accepted. */
async function requireFullOwner(transaction: Queryable, hasJoined: boolean): Promise<void> {
  if ((await transaction.query(selectFullOwner, [hasJoined])).length > 0) return
  refuseInput(
    'role',
    'belongs to the last owner of all organizations who can sign in: make another operator an owner first, and let them sign in',
  )
}

/** Nobody gives more organizations than they see. */
function requireWithin({ organizationIds: own }: Actor, given: OrganizationIds): void {
  if (!seesAll(own, given)) refuseInput('organizationIds', 'contains organizations that you do not manage')
}

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

const FIELDS = {
  name: orNull(StorableText({ minLength: 1, maxLength: 256, description: 'display name' }), ''),
  role: Type.Enum([...ROLES], {
    description: 'viewer: sees; manager: also changes; owner: also manages operators and organizations',
  }),
  organizationIds: Object.assign(
    orNull(
      Type.Array(IdText(), {
        maxItems: 1_000,
        description: 'only these organizations, or `all`',
      }),
      'all',
    ),
    { each: 'organization' },
  ),
}

/**
 * With more organizations, password and sessions end: an owner of all of them makes the link. Otherwise, who accepted the link of one
 * organization under the address of another person would get the others. Throws `invalid_input` if nobody could manage operators
 * afterwards.
 */
async function update(
  transaction: Queryable,
  { by, ...before }: LockedOperator & { by: Actor },
  changes: Partial<Fields>,
): Promise<Outcome<Invited | undefined>> {
  const after = { ...before, ...changes }
  requireWithin(by, after.organizationIds)
  await requireOrganizations(transaction, changes.organizationIds ?? null)
  const { id, name, role, organizationIds, status } = after
  await transaction.query(updateFields, [id, name, role, organizationIds, status])
  if (isFullOwner(before) && !isFullOwner(after)) await requireFullOwner(transaction, before.hasJoined)
  // A disabled operator who is enabled later has to sign in again.
  if (status === 'disabled') await endSessionsOf(transaction, id)
  const seesMore = !seesAll(before.organizationIds, organizationIds)
  const invited = seesMore && { result: await invite(transaction, id, false) }
  // The name is a person's, so the log only says that it was changed.
  const { name: renamed, ...fields } = changesBetween<Fields>(before, changes)
  return { ...invited, changes: renamed === undefined ? fields : { ...fields, name: 'replaced' } }
}

const idsOf = (ids: string[] | null): OrganizationIds => ids?.map(BigInt) ?? null

export const OPERATORS = {
  list: list({
    name: 'operator.list',
    role: 'owner',
    does: 'list operators',
    help: 'list all operators',
    isWhole: true,
    run: ({ database, actor }) => listOperators(database, actor.organizationIds),
    row: ({ organizationIds, ...operator }) => ({
      ...operator,
      organizations: organizationIds?.join(', ') ?? 'all',
    }),
  }),

  /**
   * An operator of other organizations with this address changes nothing, so the actor does not learn of them. The one who
   * accepts an invitation first has the address.
   */
  add: add({
    name: 'operator.add',
    role: 'owner',
    does: 'add an operator',
    help: 'add an operator and print an invitation link, which works once within 24 hours',
    records: 'operator.added',
    input: {
      email: StorableText({
        minLength: 1,
        maxLength: 256,
        description: 'address with which the operator signs in',
      }),
      role: FIELDS.role,
      name: Default(FIELDS.name, null),
      organizationIds: Default(FIELDS.organizationIds, null),
    },
    run: async ({ database, actor, input: { email, name, role, ...given } }) => {
      const address = readEmail(email)
      const organizationIds = idsOf(given.organizationIds)
      const by = await lockOperators(database, actor)
      requireWithin(by, organizationIds)
      await requireOrganizations(database, organizationIds)
      const visible = await database.query(selectVisible, [address, by.organizationIds])
      if (visible.length > 0)
        refuseInput('email', 'belongs to another operator already: change that one, or invite it again')
      const invitation = newInvitation()
      const values = [address, name, role, organizationIds, hashOfInvitation(invitation)]
      const [added] = await database.query<{ id: bigint }>(insertOperator, values)
      const { id } = added as { id: bigint }
      const result: Invited = { id, invitation }
      const target = { id, organizationId: organizationOf(organizationIds) }
      const changes = { email: [null, address], role: [null, role], organizationIds: [null, organizationIds] }
      return { result, target, changes }
    },
  }),

  update: change({
    name: 'operator.update',
    role: 'owner',
    does: 'change an operator',
    help: 'change an operator; more organizations end the password and print a new invitation link',
    records: 'operator.updated',
    input: partial(FIELDS),
    run: ({ database, target, input: { organizationIds: ids, ...changes } }) =>
      update(database, target, { ...changes, ...(ids !== undefined && { organizationIds: idsOf(ids) }) }),
  }),

  disable: change({
    name: 'operator.disable',
    role: 'owner',
    does: 'disable an operator',
    help: 'disable an operator; the next request of all sessions is refused',
    records: 'operator.disabled',
    run: ({ database, target }) => update(database, target, { status: 'disabled' }),
  }),

  enable: change({
    name: 'operator.enable',
    role: 'owner',
    does: 'enable an operator',
    help: 'enable a disabled operator, who signs in again with the same password',
    records: 'operator.enabled',
    status: 'active',
    run: ({ database, target }) => update(database, target, { status: 'active' }),
  }),

  /** Replaces the open invitation. The password stays until the new one is accepted. */
  invite: change({
    name: 'operator.invite',
    role: 'owner',
    does: 'invite an operator',
    help: 'print a new invitation link, for a forgotten password; the previous link no longer works',
    records: 'operator.invited',
    run: async ({ database, target: { id, status } }) => {
      if (status === 'disabled') refuseInput('status', 'is disabled: enable the operator first')
      return { result: await invite(database, id, true) }
    },
  }),
}
