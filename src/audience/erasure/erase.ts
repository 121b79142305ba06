/** DELETE /api/audience/:id: erases a person. Older events do not bring the person back. */
import type { FastifyInstance, onRequestAsyncHookHandler } from 'fastify'
import { type Scope, scopeOf } from '../../accounts/scope.ts'
import { AppError } from '../../errors.ts'
import { parsePathId } from '../../http/path-id.ts'
import { readIfMatch } from '../../http/validate.ts'
import type { Database } from '../../postgres/database.ts'
import {
  EVENTS_PER_STATEMENT,
  finishErasure,
  lockOutSendersAndFlushes,
  type PendingErasure,
  selectPending,
  storePending,
} from '../../postgres/erasure-lock.ts'
import { DatabaseBusy } from '../../postgres/faults.ts'
import { waitForStandby } from '../../postgres/replication/replication.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { selectVersion } from '../member.ts'
import { eraseSchema } from '../route-schemas.ts'
import type { ErasureLedger } from './erasure-ledger.ts'

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
 * Flushes wait for this transaction, so the erasure of a person with very many events is returned as pending, and the remaining events
 * are scrubbed later. `unknown`: the scope has no such member. Throws `erase_stale`.
 *
 * The locks are taken first, in a separate statement. A flush that has its lock commits before the events are searched. A flush that
 * waits sees the erasure, and its events get greater ids. A body for an endpoint was either read before and is written completely, or
 * is read after the commit (decision 46).
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
  const values = [accountId, organizationId, id, allowedVersions]
  const [member] = await transaction.query<Pick<Person, 'user_id' | 'person_hash' | 'last_event_id'>>(
    deleteMember,
    values,
  )
  if (member === undefined) return findUnfinished(transaction, scope, id, allowedVersions)
  return eraseTraces(
    transaction,
    scope,
    { ...member, channel_oa_id: accountId, member_id: id, is_member: true },
    now,
  )
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

type Person = {
  channel_oa_id: bigint
  member_id: bigint
  user_id: string
  last_event_id: bigint
  person_hash: Buffer
  is_member: boolean
}

/** Deletes the data of the person. A keyed hash remains, by which older events are recognized. */
async function eraseTraces(
  transaction: Queryable,
  { accountId, organizationId }: Scope,
  { person_hash, is_member, ...erasure }: Person,
  now: () => number,
): Promise<PendingErasure | 'complete'> {
  const { member_id, user_id, last_event_id } = erasure
  await transaction.query(storeErasure, [
    accountId,
    person_hash,
    Math.floor(now()),
    is_member ? member_id : null,
  ])
  const values = [accountId, user_id, last_event_id, EVENTS_PER_STATEMENT]
  const [erased] = await transaction.query<{ is_complete: boolean }>(erasePeople, values)
  if (erased?.is_complete === true) return 'complete'
  await transaction.query(storePending, [accountId, organizationId, member_id, user_id, last_event_id])
  return erasure
}

/** Of an earlier, interrupted DELETE of this member. */
async function findUnfinished(
  transaction: Queryable,
  { accountId, organizationId }: Scope,
  id: bigint,
  allowedVersions: bigint[] | null,
): Promise<PendingErasure | 'unknown'> {
  if (allowedVersions !== null) {
    const [stale] = await transaction.query(selectVersion, [accountId, organizationId, id])
    if (stale !== undefined) throw new AppError('erase_stale')
  }
  const [pending] = await transaction.query<PendingErasure>(selectPending, [accountId, organizationId, id])
  if (pending !== undefined) return pending
  // If the response of a DELETE was lost, the client repeats it and takes the 404 as success. So the erasure must be replicated.
  await transaction.query(waitForStandby)
  return 'unknown'
}

/**
 * $1 bigint: account; $2 bigint: organization; $3 bigint: member; $4 bigint[]: versions, null for any. A trigger stores the member's
 * id as a tombstone for the delta feed.
 */
const deleteMember = statement('delete-member')`
    delete from audience_member m using official_account a
     where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = $3 and a.id = m.channel_oa_id
       and ($4::bigint[] is null or m.version = any ($4))
    returning m.user_id, person_hash(a.person_key, m.user_id) as person_hash,
              nextval(pg_get_serial_sequence('event', 'id')) as last_event_id`

/**
 * $1 bigint: account; $2 bigint: organization; $3 text: user id. For pending_erasure, a person who is not a member gets an unused
 * member id.
 */
const selectPerson = statement('select-person')`
    select a.id as channel_oa_id, m.id is not null as is_member, $3::text as user_id,
           coalesce(m.id, nextval(pg_get_serial_sequence('audience_member', 'id'))) as member_id,
           person_hash(a.person_key, $3) as person_hash, nextval(pg_get_serial_sequence('event', 'id')) as last_event_id
      from official_account a
      left join audience_member m on m.channel_oa_id = a.id and m.organization_id = $2 and m.user_id = $3
     where a.id = $1`

/**
 * $1 bigint: account; $2 bytea: hash of the person; $3 bigint: milliseconds since 1970, by this machine's clock. Events without a
 * time get one from the same clock. The database's clock may step when another server takes over. An event of the same millisecond
 * counts as older than the erasure. $4 bigint: the erased member, or null.
 */
const storeErasure = statement('store-erasure')`
    insert into erased_person as e (channel_oa_id, person_hash, erased_at, member_id)
    values ($1, $2, timestamptz 'epoch' + $3::bigint * interval '1 millisecond', $4)
        on conflict (channel_oa_id, person_hash) do update
           set erased_at = greatest(e.erased_at, excluded.erased_at), member_id = coalesce(excluded.member_id, e.member_id),
               in_ledger = false`

/** $1 bigint: account; $2 text: user id; $3 bigint: last event id; $4 int: limit. */
const erasePeople = statement('erase-person')`
    select is_complete from erase_people($1, array[$2], $3, $4)`
