/** Applies entries of an import file to members. */
import type { Scope } from '../../accounts/scope.ts'
import { AppError, FatalError } from '../../errors.ts'
import { isObject } from '../../http/body.ts'
import { parsePathId } from '../../http/path-id.ts'
import { textArray } from '../../postgres/binary-array.ts'
import { type Queryable, type SendPipeline, statement } from '../../postgres/statement.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { checkUpdate } from '../update.ts'
import { type UpdateById, updateMembers } from '../update-members.ts'

/** What became of an entry. Two entries of one member have the same outcome in a batch. */
export type Outcome = 'changed' | 'unchanged' | Error

/**
 * Sets the externalId, tags and attributes that each entry has, in the given order and in one transaction. A missing field keeps
 * its value, and all other fields are ignored. Throws `external_id_taken`, or the database's error, if the transaction fails. Then no
 * member is changed.
 * @param entries parsed ones, or the errors of those that cannot be parsed
 * @param send sends one transaction, or a part of the transaction `database`
 */
export async function importEntries(
  database: Queryable,
  send: SendPipeline,
  scope: Scope,
  entries: unknown[],
): Promise<Outcome[]> {
  const ids = await findMemberIds(database, scope, entries)
  const checked = entries.map((entry) => errorOr(() => checkEntry(entry, ids)))
  const updates = checked.flatMap((update) => (update instanceof Error ? [] : [update]))
  const changes = await updateMembers(send, scope, updates)
  return checked.map((update) => {
    if (update instanceof Error) return update
    const isChanged = changes.get(update.id)
    if (isChanged === undefined) return new AppError('unknown_member')
    return isChanged ? 'changed' : 'unchanged'
  })
}

function errorOr<T>(check: () => T): T | Error {
  try {
    return check()
  } catch (error) {
    return error as Error
  }
}

function checkEntry(entry: unknown, idsByUserId: Map<string, bigint>): UpdateById {
  if (entry instanceof Error) throw entry
  if (!isObject(entry)) throw new FatalError('the entry is not a JSON object')
  const { externalId, tags, attributes } = entry
  const id = memberIdOf(entry, idsByUserId)
  const given = Object.entries({ externalId, tags, attributes }).filter(([, value]) => value !== undefined)
  return { id, update: checkUpdate(Object.fromEntries(given)) }
}

/** A file from another system may contain that system's ids, so an id must belong to the entry's user id. */
function memberIdOf({ id, userId }: Record<string, unknown>, idsByUserId: Map<string, bigint>): bigint {
  // JSON.parse has already rounded a number beyond 2^53.
  const isExact = typeof id === 'string' || Number.isSafeInteger(id)
  const givenId = isExact ? parsePathId(String(id)) : null
  if (id !== undefined && givenId === null)
    throw new FatalError('the id is not a 64-bit integer: write it as text')
  if (userId === undefined && givenId !== null) return givenId
  if (typeof userId !== 'string' || userId === '')
    throw new FatalError('the entry has neither a userId nor an id')
  const memberId = idsByUserId.get(userId)
  if (memberId === undefined) throw new AppError('unknown_member')
  if (givenId !== null && givenId !== memberId) {
    throw new FatalError('its id is not the id of its userId: leave one of them out')
  }
  return memberId
}

/** $1 account id bigint, $2 organization id bigint, $3 user ids text[] */
const selectMemberIds = statement('member-ids-by-user')`select id, user_id from audience_member
          where channel_oa_id = $1 and organization_id = $2 and user_id = any ($3::text[])`

async function findMemberIds(
  database: Queryable,
  scope: Scope,
  entries: unknown[],
): Promise<Map<string, bigint>> {
  const userIds = entries.flatMap((entry) => {
    const { userId } = isObject(entry) ? entry : {}
    return typeof userId === 'string' && isStorableText(userId) ? [userId] : []
  })
  if (userIds.length === 0) return new Map()
  const { accountId, organizationId } = scope
  const values = [accountId, organizationId, textArray(userIds)]
  const members = await database.query<{ id: bigint; user_id: string }>(selectMemberIds, values)
  return new Map(members.map(({ id, user_id }) => [user_id, id]))
}
