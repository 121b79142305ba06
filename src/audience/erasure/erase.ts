/** DELETE /api/audience/:id: erases a person. Older events do not bring the person back. */
import type { FastifyInstance, FastifySchema, onRequestAsyncHookHandler } from 'fastify'
import {
  EVENTS_PER_STATEMENT,
  finishErasure,
  lockOutSendersAndFlushes,
  type PendingErasure,
  selectPending,
  storePending,
} from '../../accounts/erasure-lock.ts'
import { type Scope, scopeOf } from '../../accounts/scope.ts'
import { AppError } from '../../errors.ts'
import { parsePathId } from '../../http/path-id.ts'
import {
  audienceRoute,
  BODY_FAILURES,
  CLIENT_FAILURES,
  failures,
  ifMatch,
  pathParameter,
} from '../../http/schema-parts.ts'
import { readIfMatch } from '../../http/validate.ts'
import type { Database } from '../../postgres/database.ts'
import { DatabaseBusy } from '../../postgres/faults.ts'
import { waitForStandby } from '../../postgres/replication/replication.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import type { ErasureLedger } from './erasure-ledger.ts'

const eraseSchema: FastifySchema = {
  ...audienceRoute,
  operationId: 'eraseMember',
  summary: 'Erase a member',
  description:
    'Deletes the member, and removes the user id and content from stored events. Events that happened before the ' +
    'erasure do not bring the member back. A later event creates a new member.',
  params: pathParameter('id', 'Id of the member.'),
  headers: ifMatch('Erases the member only if it still has this version.'),
  response: {
    204: { type: 'null', description: 'The member was erased.' },
    ...failures({
      ...CLIENT_FAILURES,
      400: 'Step 1: the API key is not active for this client. Or If-Match is malformed.',
      404: 'Step 2: the scope has no such member.',
      412: 'Step 2: the member has another version than If-Match.',
      413: BODY_FAILURES[413],
      500: 'Step 3: the erasure failed, or the credentials could not be checked. Send the request again.',
      503: 'Statements of other accounts take too long. Send the request again.',
    }),
  },
}

export function eraseRoute(
  app: FastifyInstance,
  database: Database,
  guard: onRequestAsyncHookHandler,
  now: () => number,
  ledger: ErasureLedger | null,
): void {
  app.delete<{ Params: { id: string } }>(
    '/api/audience/:id',
    { schema: eraseSchema, onRequest: guard },
    async (request, reply) => {
      const scope = scopeOf(request)
      if (scope === null) throw new AppError('erase_without_scope')
      const id = parsePathId(request.params.id)
      if (id === null) throw new AppError('erase_unknown_member')
      const tenant = database.forTenant(scope)
      const erased = await erasePerson(tenant, ledger, scope, id, now, readIfMatch(request))
      if (!erased) throw new AppError('erase_unknown_member')
      return reply.code(204).send()
    },
  )
}

/** Runs in the transaction of an erasure, once the member is found. */
export type OnErased = (transaction: Queryable, memberId: bigint | null) => Promise<void>

/**
 * Returns false if the scope has no such member. Throws `erase_stale` and `erase_failed`.
 *
 * An erasure commits first, and is then written to the ledger. So the ledger has no erasure that the database lacks, unless the
 * database was restored. If the write fails, a repetition finds no member, and writes the erasure again.
 */
export async function erasePerson(
  tenant: Transactions,
  ledger: ErasureLedger | null,
  scope: Scope,
  id: bigint,
  now: () => number,
  allowedVersions: bigint[] | null,
  onErased: OnErased = async () => undefined,
): Promise<boolean> {
  try {
    const erasure = await tenant.transaction(async (transaction) => {
      const erased = await eraseMember(transaction, scope, id, now, allowedVersions)
      if (erased !== 'unknown') await onErased(transaction, id)
      return erased
    })
    await ledger?.recordMember(tenant, scope.accountId, id)
    if (erasure === 'unknown') return false
    if (erasure !== 'complete') await finishErasure(tenant, erasure)
    return true
  } catch (error) {
    if (error instanceof DatabaseBusy || (error instanceof AppError && error.code === 'erase_stale'))
      throw error
    throw new AppError('erase_failed', { cause: error })
  }
}

/**
 * Flushes wait for this transaction, so the erasure of a person with very many events is returned as pending. Throws `erase_stale`.
 *
 * The locks are taken first, in a separate statement. A flush that has its lock commits before the events are searched. A flush that
 * waits sees the erasure, and its events get greater ids. A body for an endpoint is written before, or read after the commit (decision 46).
 */
async function eraseMember(
  transaction: Queryable,
  scope: Scope,
  id: bigint,
  now: () => number,
  allowedVersions: bigint[] | null,
): Promise<PendingErasure | 'complete' | 'unknown'> {
  const { accountId, organizationId } = scope
  await transaction.query(lockOutSendersAndFlushes, [accountId])
  const values = [accountId, organizationId, id]
  const [member] = await transaction.query<Person & { version: bigint }>(lockMember, values)
  if (member === undefined) return findUnfinished(transaction, scope, id)
  if (allowedVersions?.includes(member.version) === false) throw new AppError('erase_stale')
  return eraseTraces(transaction, scope, member, now)
}

/** Erases a person by user id, who need not be a member. Returns whether the person was a member. */
export async function eraseUser(
  tenant: Transactions,
  ledger: ErasureLedger | null,
  scope: Scope,
  userId: string,
  now: () => number,
  onErased: OnErased = async () => undefined,
): Promise<boolean> {
  const { accountId, organizationId } = scope
  const { wasMember, erasure } = await tenant.transaction(async (transaction) => {
    await transaction.query(lockOutSendersAndFlushes, [accountId])
    const [person] = await transaction.query<Person>(selectPerson, [accountId, organizationId, userId])
    if (person === undefined) throw new Error('the account does not exist')
    await onErased(transaction, person.is_member ? person.member_id : null)
    return { wasMember: person.is_member, erasure: await eraseTraces(transaction, scope, person, now) }
  })
  await ledger?.recordPerson(tenant, accountId, userId)
  if (typeof erasure === 'object') await finishErasure(tenant, erasure)
  return wasMember
}

interface Person extends PendingErasure {
  person_hash: Buffer
  is_member: boolean
}

/** Deletes the data of the person. A keyed hash remains, by which older events are recognized. */
async function eraseTraces(
  transaction: Queryable,
  { accountId, organizationId }: Scope,
  person: Person,
  now: () => number,
): Promise<PendingErasure | 'complete'> {
  const { person_hash, is_member, member_id, user_id, last_event_id } = person
  const erasedId = is_member ? member_id : null
  await transaction.query(storeErasure, [accountId, person_hash, Math.floor(now()), erasedId])
  const values = [accountId, user_id, last_event_id, EVENTS_PER_STATEMENT]
  const [erased] = await transaction.query<{ is_complete: boolean }>(erasePeople, values)
  if (erased?.is_complete === true) return 'complete'
  await transaction.query(storePending, [accountId, organizationId, member_id, user_id, last_event_id])
  return person
}

/** Of an earlier, interrupted DELETE of this member. */
async function findUnfinished(
  transaction: Queryable,
  { accountId, organizationId }: Scope,
  id: bigint,
): Promise<PendingErasure | 'unknown'> {
  const [pending] = await transaction.query<PendingErasure>(selectPending, [accountId, organizationId, id])
  if (pending !== undefined) return pending
  // If the response of a DELETE was lost, the client repeats it and takes the 404 as success. So the erasure must be replicated.
  await transaction.query(waitForStandby)
  return 'unknown'
}

const PERSON = `a.id as channel_oa_id, m.id is not null as is_member, nextval(pg_get_serial_sequence('event', 'id')) as last_event_id`

const lockMember = statement('lock-member-to-erase')`
    select ${PERSON}, m.version, m.user_id, m.id as member_id, person_hash(a.person_key, m.user_id) as person_hash
      from audience_member m join official_account a on a.id = m.channel_oa_id
     where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = $3
       for update of m`

/** $1 bigint: account; $2 bigint: organization; $3 text: user id. A person who is not a member gets an unused member id for pending_erasure. */
const selectPerson = statement('select-person')`
    select ${PERSON}, $3::text as user_id, person_hash(a.person_key, $3) as person_hash,
           coalesce(m.id, nextval(pg_get_serial_sequence('audience_member', 'id'))) as member_id
      from official_account a
      left join audience_member m on m.channel_oa_id = a.id and m.organization_id = $2 and m.user_id = $3
     where a.id = $1`

/**
 * $1 bigint: account; $2 bytea: hash of the person; $3 bigint: milliseconds since 1970, by the clock that gives events without a time
 * theirs, because the database's clock may step when another server takes over; $4 bigint: the erased member, or null. An event of the
 * same millisecond counts as older.
 */
const storeErasure = statement('store-erasure')`
    insert into erased_person as e (channel_oa_id, person_hash, erased_at, member_id)
    values ($1, $2, timestamptz 'epoch' + $3::bigint * interval '1 millisecond', $4)
        on conflict (channel_oa_id, person_hash) do update
           set erased_at = greatest(e.erased_at, excluded.erased_at), member_id = coalesce(excluded.member_id, e.member_id),
               in_ledger = false`

const erasePeople = statement('erase-person')`
    select is_complete from erase_people($1, array[$2], $3, $4)`
