/** Operators, and how they sign in: by a password, which they choose at an invitation link, or through a proxy. */
import { createHash, createHmac, type KeyObject, randomBytes } from 'node:crypto'
import { equalInConstantTime, Secret } from '../config/secret.ts'
import { refuseInput } from '../http/validate.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import { recordActivity } from './activity.ts'
import type { Operator, OrganizationIds, Role } from './actor.ts'
import { hashPassword, isPassword, requireGoodPassword } from './passwords.ts'
import { endSessionsOf, type OpenedSession, openSession, type SignedIn } from './sessions.ts'

/** Whether the operator has accepted an invitation, or a proxy has signed them in: then the address is theirs. */
export const HAS_JOINED = '(password_hash is not null or signed_in_at is not null)'
/** A proxy sends the address with every request. Its sign-ins are noted once an hour, and if there is something to end. */
const IS_NOTE_DUE = `(signed_in_at is null or signed_in_at < now() - interval '1 hour'
             or password_hash is not null or invitation_hash is not null)`

const INVITATION = /^[\w-]{43}$/

export const hashOfInvitation = (invitation: string): Buffer =>
  createHash('sha256').update(invitation).digest()

const SIGNED_IN = `'operator' as kind, id as "operatorId", email as name, role, organization_ids as "organizationIds"`

const selectInvited = statement('select-invited-operator')`
    select ${SIGNED_IN} from operator
     where invitation_hash = $1 and invitation_expires_at > now() and status = 'active'`

/** $1 invitation_hash bytea, $2 password_hash text. Of two who use one link at the same time, one finds nothing. */
const acceptByHash = statement('accept-invitation')`
    update operator set password_hash = $2, invitation_hash = null, invitation_expires_at = null, signed_in_at = now()
     where invitation_hash = $1 and invitation_expires_at > now() and status = 'active'
    returning id`

/** Null if the invitation was used, replaced or has expired. */
export async function findInvited(database: Queryable, invitation: string): Promise<SignedIn | null> {
  if (!INVITATION.test(invitation)) return null
  const [operator] = await database.query<SignedIn>(selectInvited, [hashOfInvitation(invitation)])
  return operator ?? null
}

/**
 * Ends all sessions of the operator, whom the caller signs in. Returns null if the invitation has ended, and if another operator has
 * joined with the address meanwhile.
 */
export async function acceptInvitation(
  database: Transactions,
  invitation: string,
  password: string,
  requestId: string,
): Promise<bigint | null> {
  const invited = await findInvited(database, invitation)
  if (invited === null) return null
  await requireGoodPassword(password, invited.name)
  const hash = await hashPassword(password)
  return database
    .transaction(async (transaction) => {
      const [operator] = await transaction.query<{ id: bigint }>(acceptByHash, [
        hashOfInvitation(invitation),
        hash,
      ])
      if (operator === undefined) return null
      await endSessionsOf(transaction, operator.id)
      await recordActivity(
        transaction,
        { ...invited, requestId },
        {
          action: 'operator.joined',
          object: { kind: 'operator', id: operator.id },
          organizationId: null,
        },
      )
      return operator.id
    })
    .catch((error: unknown) => {
      if (violatedConstraint(error) === 'operator_email_joined') return null
      throw error
    })
}

/** $1 email text. Of several operators with one address, at most one has a password. */
const selectByEmail = statement('select-operator-by-email')`
    select id, password_hash as "passwordHash"
      from operator where email = $1 and status = 'active' and password_hash is not null`

const selectPasswords = statement('select-any-password')`
    select id from operator where password_hash is not null limit 1`

export async function hasPasswords(database: Queryable): Promise<boolean> {
  return (await database.query(selectPasswords)).length > 0
}

/**
 * Locks the operator, so that a new password or a disabled operator ends the session that the transaction opens, or prevents it.
 *
 * $1 operator id bigint, $2 the password_hash that was compared text
 */
const noteSignIn = statement('note-sign-in')`
    update operator set signed_in_at = now()
     where id = $1 and password_hash = $2 and status = 'active' returning id`

/**
 * Returns null for a wrong address or password: which of both is wrong, nobody learns.
 * @param isKnown whether the operator has signed in with this browser before
 */
export async function signIn(
  database: Transactions,
  email: string,
  password: string,
  isKnown: boolean,
): Promise<OpenedSession | null> {
  type Row = { id: bigint; passwordHash: string }
  const [operator] = await database.query<Row>(selectByEmail, [email])
  const isRight = await isPassword(password, operator?.passwordHash ?? null, isKnown)
  if (!isRight || operator === undefined) return null
  const { id, passwordHash } = operator
  return database.transaction(async (transaction) => {
    const noted = await transaction.query(noteSignIn, [id, passwordHash])
    return noted.length === 0 ? null : openSession(transaction, id)
  })
}

/** $1 email text. The operator who has joined comes first, and disabled ones last. */
const selectOfProxy = statement('select-operators-of-address')`
    select ${SIGNED_IN}, status = 'active' as "isActive", ${HAS_JOINED} as "hasJoined", ${IS_NOTE_DUE} as "isNoteDue"
      from operator where email = $1 order by ${HAS_JOINED} desc, status, id limit 2`

/** The proxy proves the address. A password and a link only prove that somebody had a link, so they end. */
const noteProxySignIn = statement('note-sign-in-of-proxy')`
    update operator set signed_in_at = now(), password_hash = null, invitation_hash = null, invitation_expires_at = null
     where id = $1 and status = 'active' and ${IS_NOTE_DUE}`

/**
 * The operator whom a proxy has signed in, and who joins thereby. Null also for a person who has several invitations and has accepted
 * none: the link of one of them decides.
 */
export async function findOperatorByEmail(database: Queryable, email: string): Promise<SignedIn | null> {
  type Row = SignedIn & { isActive: boolean; hasJoined: boolean; isNoteDue: boolean }
  const [first, other] = await database.query<Row>(selectOfProxy, [email.trim().toLowerCase()])
  if (first === undefined) return null
  const { isActive, hasJoined, isNoteDue, ...operator } = first
  if (!isActive || (!hasJoined && other?.isActive)) return null
  if (isNoteDue) await database.query(noteProxySignIn, [operator.operatorId])
  return operator
}

const selectPassword = statement('select-password')`
    select email, password_hash as "passwordHash" from operator where id = $1`

/** $1 operator id bigint, $2 password_hash text, $3 the earlier password_hash text. Of two concurrent changes, one changes nothing. */
const storePassword = statement('store-password')`
    update operator set password_hash = $2 where id = $1 and password_hash = $3 returning id`

/** Ends all sessions of the operator. Throws `invalid_input` if the current password is wrong or the new one is not accepted. */
export async function changePassword(
  database: Transactions,
  operator: Operator,
  current: string,
  password: string,
): Promise<void> {
  const id = operator.operatorId as bigint
  type Row = { email: string; passwordHash: string | null }
  const [stored] = await database.query<Row>(selectPassword, [id])
  if (stored === undefined || !(await isPassword(current, stored.passwordHash, true)))
    refuseInput('current', 'is not your password')
  await requireGoodPassword(password, stored.email)
  const hash = await hashPassword(password)
  await database.transaction(async (transaction) => {
    const changed = await transaction.query(storePassword, [id, hash, stored.passwordHash])
    if (changed.length === 0) refuseInput('current', 'is not your password any more')
    await endSessionsOf(transaction, id)
    await recordActivity(transaction, operator, {
      action: 'operator.updated',
      object: { kind: 'operator', id },
      organizationId: null,
      changes: { password: 'replaced' },
    })
  })
}

// The people who may sign in.

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

/** $1 whether only operators who have joined count boolean. One whose password has ended may never accept the new invitation. */
export const selectFullOwner = statement('select-owner-of-all')`
    select id from operator
     where role = 'owner' and organization_ids is null and status = 'active'
       and (not $1 or password_hash is not null or (signed_in_at is not null and invitation_hash is null)) limit 1`

/** Then the console needs no CONSOLE_TOKEN. The owner may still have to accept the invitation. */
export async function hasOwner(database: Queryable): Promise<boolean> {
  return (await database.query(selectFullOwner, [false])).length > 0
}

/** RFC 5321 */
const EMAIL_MAX_LENGTH = 254

/** Throws `invalid_input`, also for invisible characters, with which two addresses look the same. Addresses are compared in lower case. */
export function readEmail(text: string): string {
  const email = text.trim().toLowerCase()
  if (email.length > EMAIL_MAX_LENGTH || !/^[^\s\p{C}@,;<>"()]+@[^\s\p{C}@,;<>"()]+$/u.test(email))
    refuseInput('email', 'must be an email address')
  return email
}

// Browsers that have signed in, by OWASP's device cookies: guesses from elsewhere do not lock out the operator of such a browser. The
// cookie has a random id and its MAC. The key of the MAC is what the operator signs in with: the stored hash of the password, or
// CONSOLE_TOKEN. All instances have it, it outlasts a restart, and a new password ends the trust in all earlier browsers. The hash has
// a random salt, so the cookie does not help to guess the password.

const ID_BYTES = 16
/** base64url of ID_BYTES and of a SHA-256. Other cookies are ignored without a query. */
const DEVICE = /^([\w-]{22})\.([\w-]{43})$/

/** Who signs in: the holder of CONSOLE_TOKEN, or the operator with this address in lower case. */
export type DeviceOwner = Secret | string

const selectKey = statement('select-key-of-devices')`
    select password_hash as key from operator
     where email = $1 and status = 'active' and password_hash is not null`

async function keyOf(database: Queryable, owner: DeviceOwner): Promise<KeyObject | string | null> {
  if (owner instanceof Secret) return owner.key()
  const [operator] = await database.query<{ key: string }>(selectKey, [owner])
  return operator?.key ?? null
}

const macOf = (id: string, key: KeyObject | string): Buffer =>
  createHmac('sha256', key).update(`device ${id}`).digest()

/** The cookie of a browser. Each sign-in makes a new one, so a stolen cookie shares its limit with nobody. */
export async function newDevice(database: Queryable, owner: DeviceOwner): Promise<string | null> {
  const key = await keyOf(database, owner)
  const id = randomBytes(ID_BYTES).toString('base64url')
  return key && `${id}.${macOf(id, key).toString('base64url')}`
}

/** The id of the browser. Null if this owner has not signed in with it since the last change of the password. */
export async function findDevice(
  database: Queryable,
  cookie: string,
  owner: DeviceOwner,
): Promise<string | null> {
  const [, id, mac] = DEVICE.exec(cookie) ?? []
  if (id === undefined || mac === undefined) return null
  const key = await keyOf(database, owner)
  return key !== null && equalInConstantTime(macOf(id, key), Buffer.from(mac, 'base64url')) ? id : null
}
