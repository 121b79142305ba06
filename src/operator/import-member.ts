/** Applies one entry of an import file to the member that it names. */
import type { Scope } from '../access/scope.ts'
import { checkUpdate, updateMember } from '../audience/update.ts'
import { AppError, FatalError } from '../errors.ts'
import { isObject } from '../http/body.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'
import { isStorableText } from '../postgres/storable.ts'

/**
 * Sets the externalId, tags and attributes that the entry has. A missing field keeps its value, and all other fields are ignored.
 * Throws a FatalError or an AppError if the entry is invalid, and DatabaseUnavailable.
 */
export async function importMember(database: Database, scope: Scope, entry: unknown): Promise<void> {
  if (!isObject(entry)) throw new FatalError('the entry is not a JSON object')
  const { id, userId, externalId, tags, attributes } = entry
  const memberId = await resolveMemberId(database, scope, id, userId)
  const given = Object.entries({ externalId, tags, attributes }).filter(([, value]) => value !== undefined)
  await updateMember(database, scope, memberId, checkUpdate(Object.fromEntries(given)), null)
}

/** A file from another system may contain that system's ids, so an id must belong to the entry's user id. */
async function resolveMemberId(
  database: Queryable,
  scope: Scope,
  id: unknown,
  userId: unknown,
): Promise<bigint> {
  // JSON.parse has already rounded a number beyond 2^53.
  const isExact = typeof id === 'string' || Number.isSafeInteger(id)
  const givenId = isExact ? parsePathId(String(id)) : null
  if (id !== undefined && givenId === null)
    throw new FatalError('the id is not a 64-bit integer: write it as text')
  if (userId === undefined && givenId !== null) return givenId
  if (typeof userId !== 'string' || userId === '')
    throw new FatalError('the entry has neither a userId nor an id')
  const memberId = await findMemberId(database, scope, userId)
  if (memberId === null) throw new AppError('unknown_member')
  if (givenId !== null && givenId !== memberId) {
    throw new FatalError('its id is not the id of its userId: leave one of them out')
  }
  return memberId
}

/** $1 account id bigint, $2 organization id bigint, $3 user id text */
const selectMemberId = {
  name: 'member-id-by-user',
  text: 'select id from audience_member where channel_oa_id = $1 and organization_id = $2 and user_id = $3',
}

async function findMemberId(database: Queryable, scope: Scope, userId: string): Promise<bigint | null> {
  if (!isStorableText(userId)) return null
  const [member] = await database.query<{ id: bigint }>(selectMemberId, [
    scope.accountId,
    scope.organizationId,
    userId,
  ])
  return member?.id ?? null
}
