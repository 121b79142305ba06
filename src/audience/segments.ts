/** Segments: named conditions of an account. */
import { AppError } from '../errors.ts'
import { type AccountId, toJson } from '../ids.ts'
import { insertWithFreeId } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type Condition, checkCondition } from './condition.ts'
import { endAudiencesOf } from './line-audience-statements.ts'

/** Characters. The name of LINE's audience has 120, of which a date takes 13. */
export const SEGMENT_NAME_MAX_LENGTH = 100

const selectCondition = statement('select-segment-condition')`
    select condition from segment where channel_oa_id = $1 and name = $2`

/** Throws `invalid_input` if the account has no segment of the name, or if another program stored what is no condition. */
export async function findCondition(
  database: Queryable,
  accountId: AccountId,
  name: string,
): Promise<Condition> {
  const [segment] = await database.query<{ condition: Condition }>(selectCondition, [accountId, name])
  if (segment !== undefined) return checkCondition(segment.condition)
  const message = 'is not the name of a segment of this account'
  throw new AppError('invalid_input', { details: [{ path: 'segment', message }] })
}

const insertSegment = statement('insert-segment')`
    insert into segment (id, channel_oa_id, name, condition) values ($4, $1, $2, $3) returning id`

export async function addSegment(
  database: Queryable,
  accountId: AccountId,
  { name, condition }: { name: string; condition: Condition },
): Promise<bigint> {
  const valuesOf = (id: bigint) => [accountId, name, toJson(condition), id]
  const [added] = await insertWithFreeId(database, 'segment', insertSegment, valuesOf)
  if (added === undefined) throw new Error('an insert returned no row')
  return added.id
}

/** Null: unchanged, so that concurrent changes of different fields are both kept. */
const updateById = statement('update-segment')`
    update segment set name = coalesce($2, name), condition = coalesce($3, condition), updated_at = now() where id = $1`

export async function updateSegment(
  database: Queryable,
  id: bigint,
  { name, condition }: { name?: string | undefined; condition?: Condition | undefined },
): Promise<void> {
  await database.query(updateById, [id, name ?? null, condition ? toJson(condition) : null])
}

/** $1 segment id bigint */
const deleteSegment = statement('delete-segment')`delete from segment where id = $1`

export async function removeSegment(database: Queryable, id: bigint): Promise<void> {
  await database.query(endAudiencesOf, [id])
  await database.query(deleteSegment, [id])
}

/** $1 segment id bigint, $2 boolean. The next upload is due now. */
const updateSync = statement('update-segment-sync')`
    update segment set sync = $2, sync_due_at = now(), sync_fault = null, sync_reason = null where id = $1`

export async function setSync(database: Queryable, id: bigint, sync: boolean): Promise<void> {
  // In the order in which uploads lock them.
  if (!sync) await database.query(endAudiencesOf, [id])
  await database.query(updateSync, [id, sync])
}
