/** DELETE /api/audience/:id: erases a person, so that nothing older brings them back. */
import type { FastifyInstance, onRequestAsyncHookHandler } from 'fastify'
import { findScope, type Scope } from '../access/scope.ts'
import { AppError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'
import { lockOutFlushes } from './erasure-lock.ts'

export function eraseRoute(
  app: FastifyInstance,
  database: Database | null,
  guard: onRequestAsyncHookHandler,
): void {
  app.delete<{ Params: { id: string } }>(
    '/api/audience/:id',
    { onRequest: guard },
    async (request, reply) => {
      const scope = await findScope(database, request.caller)
      if (scope === null || database === null) throw new AppError('erase_without_scope')
      const id = parsePathId(request.params.id)
      const erased = id !== null && (await eraseOrFail(database, scope, id))
      if (!erased) throw new AppError('erase_unknown_member')
      return reply.code(204).send()
    },
  )
}

async function eraseOrFail(database: Database, scope: Scope, id: bigint): Promise<boolean> {
  try {
    return await database.transaction((transaction) => eraseMember(transaction, scope, id))
  } catch (error) {
    throw new AppError('erase_failed', { cause: error })
  }
}

const deleteMember: Statement = {
  name: 'delete-member',
  text: `
    delete from audience_member m using official_account a
     where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = $3 and a.id = m.channel_oa_id
    returning m.user_id, person_hash(a.person_key, m.user_id) as person_hash`,
}

// Milliseconds, as the platforms tell time: an event of the very millisecond counts as from before.
const rememberErasure: Statement = {
  name: 'remember-erasure',
  text: `
    insert into erased_person as e (channel_oa_id, person_hash, erased_at)
    values ($1, $2, date_trunc('milliseconds', clock_timestamp()))
        on conflict (channel_oa_id, person_hash) do update set erased_at = excluded.erased_at`,
}

/** The id says nothing of the person: it lets a delta feed tell that the member is gone. */
const tellErasure: Statement = {
  name: 'tell-erasure',
  text: `insert into erased_member (channel_oa_id, organization_id, id) values ($1, $2, $3)
             on conflict (channel_oa_id, id) do update set deleted_at = excluded.deleted_at`,
}

const deleteTrackedActivity: Statement = {
  name: 'delete-tracked-activity',
  text: `delete from tracked_activity where channel_oa_id = $1 and user_id = $2`,
}

const eraseFromOwnEvents: Statement = {
  name: 'erase-from-own-events',
  text: `update event set user_id = null, payload = null where channel_oa_id = $1 and user_id = $2`,
}

const eraseFromOthersEvents: Statement = {
  name: 'erase-from-others-events',
  text: `
    update event set other_user_ids = array_remove(other_user_ids, $2), payload = null
     where channel_oa_id = $1 and other_user_ids @> array[$2]`,
}

/**
 * Erases the member, what stored events say of the person, and their tracked activity; keeps a keyed hash by
 * which older events are recognised. False if the scope has no such member.
 *
 * The lock comes first, in a statement of its own: a flush that holds it is over before we look for events,
 * and a flush that waits for it sees the erasure.
 */
export async function eraseMember(transaction: Queryable, scope: Scope, id: bigint): Promise<boolean> {
  await transaction.query(lockOutFlushes, [scope.accountId])
  const [member] = await transaction.query<{ user_id: string; person_hash: Buffer }>(deleteMember, [
    scope.accountId,
    scope.organizationId,
    id,
  ])
  if (member === undefined) return false
  await transaction.query(rememberErasure, [scope.accountId, member.person_hash])
  await transaction.query(tellErasure, [scope.accountId, scope.organizationId, id])
  await transaction.query(deleteTrackedActivity, [scope.accountId, member.user_id])
  await transaction.query(eraseFromOwnEvents, [scope.accountId, member.user_id])
  await transaction.query(eraseFromOthersEvents, [scope.accountId, member.user_id])
  return true
}
