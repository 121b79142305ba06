/** DELETE /api/audience/:id: erases a person, so that nothing older brings them back. */
import type { FastifyInstance, onRequestAsyncHookHandler } from 'fastify'
import { findScope, type Scope } from '../access/scope.ts'
import { AppError } from '../errors.ts'
import { readIfMatch } from '../http/if-match.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable, Row, Statement } from '../postgres/statement.ts'
import { lockOutFlushes } from './erasure-lock.ts'
import { selectVersion } from './member.ts'
import { eraseSchema } from './route-schemas.ts'

export function eraseRoute(
  app: FastifyInstance,
  database: Database | null,
  guard: onRequestAsyncHookHandler,
): void {
  app.delete<{ Params: { id: string } }>(
    '/api/audience/:id',
    { schema: eraseSchema, onRequest: guard },
    async (request, reply) => {
      const scope = await findScope(database, request.caller)
      if (scope === null || database === null) throw new AppError('erase_without_scope')
      const id = parsePathId(request.params.id)
      const erased = id !== null && (await eraseOrFail(database, scope, id, readIfMatch(request)))
      if (!erased) throw new AppError('erase_unknown_member')
      return reply.code(204).send()
    },
  )
}

async function eraseOrFail(
  database: Database,
  scope: Scope,
  id: bigint,
  allowedVersions: bigint[] | null,
): Promise<boolean> {
  try {
    const rest = await database.transaction((transaction) =>
      eraseMember(transaction, scope, id, allowedVersions),
    )
    if (rest === null) return false
    if (rest !== 'nothing') await eraseRest(database, rest)
    return true
  } catch (error) {
    if (error instanceof AppError && error.code === 'erase_stale') throw error
    throw new AppError('erase_failed', { cause: error })
  }
}

/** Finishes erasures whose service ended meanwhile. */
export async function finishErasures(database: Database): Promise<void> {
  for (const rest of await database.query<Rest>(selectRests)) await eraseRest(database, rest)
}

/** Stored events scrubbed in one statement: about a tenth of a second, during which flushes of the account wait. */
const EVENTS_AT_ONCE = 20_000

/** What is left of an erasure: the events of a person up to an id. */
interface Rest extends Row {
  channel_oa_id: bigint
  member_id: bigint
  user_id: string
  last_event_id: bigint
}

/** A trigger keeps the id, which says nothing of the person: it lets a delta feed tell that the member is gone. */
const deleteMember: Statement = {
  name: 'delete-member',
  text: `
    delete from audience_member m using official_account a
     where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = $3 and a.id = m.channel_oa_id
       and ($4::bigint[] is null or m.version = any ($4))
    returning m.user_id, person_hash(a.person_key, m.user_id) as person_hash,
              nextval(pg_get_serial_sequence('event', 'id')) as last_event_id`,
}

// Milliseconds, as the platforms tell time: an event of the very millisecond counts as from before.
const rememberErasure: Statement = {
  name: 'remember-erasure',
  text: `
    insert into erased_person as e (channel_oa_id, person_hash, erased_at)
    values ($1, $2, date_trunc('milliseconds', clock_timestamp()))
        on conflict (channel_oa_id, person_hash) do update set erased_at = excluded.erased_at`,
}

const deleteTrackedActivity: Statement = {
  name: 'delete-tracked-activity',
  text: `delete from tracked_activity where channel_oa_id = $1 and user_id = $2`,
}

/**
 * Events are changed at their places, and asked once more whose they are: other partitions have the same places. `+ 0` and
 * `coalesce` keep indexes out of that, which would lead past all of the person's events and compare each with every place.
 * Locked when they are found: an update that meets one that has just been moved would look for all places anew, for each.
 */
const scrub = (changes: string, isTheirs: (column: string) => string, column: string, nothing: string) => `
  with found as materialized (
    select ctid as place from event where channel_oa_id = $1 and ${isTheirs(column)} and id + 0 <= $3 limit $4 for update
  ), scrubbed as (
    update event set ${changes}
     where ctid = any (array(select place from found))
       and channel_oa_id + 0 = $1 and ${isTheirs(`coalesce(${column}, ${nothing})`)} and id + 0 <= $3
    returning 1
  )
  select (select count(*) from found)::int as found, (select count(*) from scrubbed)::int as scrubbed`

const scrubOwnEvents: Statement = {
  name: 'scrub-own-events',
  text: scrub(
    'user_id = null, message_id = null, payload = null',
    (column) => `${column} = $2`,
    'user_id',
    `''`,
  ),
}

const scrubOthersEvents: Statement = {
  name: 'scrub-others-events',
  text: scrub(
    'other_user_ids = array_remove(other_user_ids, $2), payload = null',
    (column) => `${column} @> array[$2]`,
    'other_user_ids',
    `'{}'`,
  ),
}

const rememberRest: Statement = {
  name: 'remember-erasure-rest',
  text: `insert into erasure_rest (channel_oa_id, organization_id, member_id, user_id, last_event_id)
         values ($1, $2, $3, $4, $5)`,
}

const selectRests = 'select channel_oa_id, member_id, user_id, last_event_id from erasure_rest'

const selectRest: Statement = {
  name: 'select-erasure-rest',
  text: `${selectRests} where channel_oa_id = $1 and organization_id = $2 and member_id = $3`,
}

const forgetRest: Statement = {
  name: 'forget-erasure-rest',
  text: `delete from erasure_rest where channel_oa_id = $1 and member_id = $2`,
}

/**
 * Erases the member, what stored events say of the person, and their tracked activity; keeps a keyed hash by
 * which older events are recognised. Null if the scope has no such member. Of who has very many events the rest is
 * returned: to be scrubbed after this transaction, which flushes wait for, and kept until it is.
 *
 * The lock comes first, in a statement of its own: a flush that holds it is over before we look for events,
 * and a flush that waits for it sees the erasure, and takes greater ids.
 */
export async function eraseMember(
  transaction: Queryable,
  scope: Scope,
  id: bigint,
  allowedVersions: bigint[] | null = null,
): Promise<Rest | 'nothing' | null> {
  const { accountId, organizationId } = scope
  await transaction.query(lockOutFlushes, [accountId])
  const [member] = await transaction.query<{ user_id: string; person_hash: Buffer; last_event_id: bigint }>(
    deleteMember,
    [accountId, organizationId, id, allowedVersions],
  )
  if (member === undefined) {
    if (allowedVersions !== null) {
      const [stale] = await transaction.query(selectVersion, [accountId, organizationId, id])
      if (stale !== undefined) throw new AppError('erase_stale')
    }
    const [rest] = await transaction.query<Rest>(selectRest, [accountId, organizationId, id])
    return rest ?? null
  }
  const { user_id: userId, last_event_id: lastEventId } = member
  await transaction.query(rememberErasure, [accountId, member.person_hash])
  await transaction.query(deleteTrackedActivity, [accountId, userId])
  const rest = { channel_oa_id: accountId, member_id: id, user_id: userId, last_event_id: lastEventId }
  if (await scrubSome(transaction, rest)) return 'nothing'
  await transaction.query(rememberRest, [accountId, organizationId, id, userId, lastEventId])
  return rest
}

async function eraseRest(database: Database, rest: Rest): Promise<void> {
  while (!(await scrubSome(database, rest)));
  await database.query(forgetRest, [rest.channel_oa_id, rest.member_id])
}

/** True once nothing is left. An event that another erasure moves at that moment is found and not scrubbed. */
async function scrubSome(target: Queryable, rest: Rest): Promise<boolean> {
  const values = [rest.channel_oa_id, rest.user_id, rest.last_event_id, EVENTS_AT_ONCE]
  for (const statement of [scrubOwnEvents, scrubOthersEvents]) {
    const [counts] = await target.query<{ found: number; scrubbed: number }>(statement, values)
    const { found = 0, scrubbed = 0 } = counts ?? {}
    if (found === EVENTS_AT_ONCE || scrubbed < found) return false
  }
  return true
}
