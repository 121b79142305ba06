/** Changes many members in one transaction: by their ids, or as the entries of an import file say. */
import type { Scope } from '../accounts/scope.ts'
import { AppError, FatalError } from '../errors.ts'
import { isObject } from '../http/body.ts'
import { parsePathId } from '../http/path-id.ts'
import { booleanArray, int8Array, textArray } from '../postgres/binary-array.ts'
import { type Queryable, type SendPipeline, statement } from '../postgres/statement.ts'
import { isStorableText } from '../postgres/storable.ts'
import { CHANGES, checkUpdate, type MemberUpdate, updateError } from './update.ts'

interface UpdateById {
  id: bigint
  update: MemberUpdate
}

/** $1 text: the API key's id, $2 text: the name of the operator or command, or empty. The trigger record_member_edit reads both. */
const setEditor = statement('set-editor')`
    select set_config('oa_audience.api_key_id', $1, true), set_config('oa_audience.actor', $2, true)`

/**
 * $1 bigint: account; $2 bigint: organization; $3 bigint[]: members. In the order of the file, an import and a flush could deadlock, so
 * members are locked in the order of flushes. Without statistics, a plain join would read the whole account. See docs/planner.md.
 */
export const lockMembers = statement('lock-members')`
    select from (select x.id
                   from unnest($3::bigint[]) as u (id)
                  cross join lateral (
                    select id, user_id from audience_member
                     where channel_oa_id = $1 and organization_id = $2 and id = u.id offset 0) x
                  order by x.user_id) e
     cross join lateral (
       select from audience_member
        where channel_oa_id = $1 and organization_id = $2 and id = e.id for no key update) locked`

/**
 * $1 bigint: account; $2 bigint: organization; $3 bigint[]: members, each once and locked by lock-members; $4 boolean[]: change
 * externalId to $5 text[]; $6 boolean[]: change tags to $7 text[], arrays as text; $8 boolean[]: change attributes to $9 text[], JSON.
 *
 * One statement for 100 updates takes half the time of 100 statements, each of which would parse the conditions of all triggers.
 * The rows are updated by ctid in the order of the arrays, because an update may use an externalId that a previous one clears.
 */
const applyUpdates = statement('member-updates')`
    update audience_member m
       set ${CHANGES}
      from (select x.ctid, x.version, u.sets_external_id, u.external_id, u.sets_tags, u.tags::text[] as tags, u.sets_attributes,
                   u.attributes::jsonb as attributes, x.old_external_id, x.old_tags, x.old_attributes
              from unnest($3::bigint[], $4::boolean[], $5::text[], $6::boolean[], $7::text[], $8::boolean[], $9::text[])
                   with ordinality as u (id, sets_external_id, external_id, sets_tags, tags, sets_attributes, attributes,
                                         position)
             cross join lateral (
               select ctid, version, external_id as old_external_id, tags as old_tags, attributes as old_attributes
                 from audience_member
                where channel_oa_id = $1 and organization_id = $2 and id = u.id offset 0) x
             order by u.position offset 0) e
     where m.ctid = e.ctid
    returning m.id, case when m.version = e.version then 0
                         when m.tags @> e.old_tags and m.attributes @> e.old_attributes
                          and m.external_id is not distinct from coalesce(e.old_external_id, m.external_id) then 1
                         else 2 end as outcome`

/**
 * Changes members in the given order and in one transaction. Returns the ids of those that exist, each with its greatest outcome. Throws
 * `external_id_taken`.
 */
export async function updateMembers(
  send: SendPipeline,
  scope: Scope,
  updates: UpdateById[],
): Promise<Map<bigint, number>> {
  if (updates.length === 0) return new Map()
  const { accountId, organizationId } = scope
  const ids = int8Array(updates.map(({ id }) => id))
  const statements = [
    { statement: lockMembers, values: [accountId, organizationId, ids] },
    { statement: setEditor, values: [String(scope.keyId ?? ''), scope.actorName ?? ''] },
    ...runsOf(updates).map((run) => ({
      statement: applyUpdates,
      values: [accountId, organizationId, ...columnsOf(run)],
    })),
  ]
  const results = await send(statements).catch((error: unknown) => {
    throw updateError(error)
  })
  const [, , ...updated] = results as Array<Array<{ id: bigint; outcome: number }>>
  const outcomes = new Map<bigint, number>()
  for (const { id, outcome } of updated.flat()) outcomes.set(id, Math.max(outcome, outcomes.get(id) ?? 0))
  return outcomes
}

/** Splits updates into runs with each member once, because a statement updates a row only once. */
function runsOf(updates: UpdateById[]): UpdateById[][] {
  const runs: UpdateById[][] = []
  const members = new Set<bigint>()
  for (const update of updates) {
    const run = runs.at(-1)
    if (run !== undefined && !members.has(update.id)) run.push(update)
    else {
      runs.push([update])
      members.clear()
    }
    members.add(update.id)
  }
  return runs
}

function columnsOf(run: UpdateById[]): Buffer[] {
  const updates = run.map(({ update }) => update)
  return [
    int8Array(run.map(({ id }) => id)),
    booleanArray(updates.map(({ externalId }) => externalId !== undefined)),
    textArray(updates.map(({ externalId }) => externalId ?? null)),
    booleanArray(updates.map(({ tags }) => tags !== undefined)),
    textArray(updates.map(({ tags }) => (tags ? arrayLiteral(tags) : null))),
    booleanArray(updates.map(({ attributes }) => attributes !== undefined)),
    textArray(updates.map(({ attributes }) => (attributes ? JSON.stringify(attributes) : null))),
  ]
}

const arrayLiteral = (texts: string[]) =>
  `{${texts.map((text) => `"${text.replaceAll(/["\\]/g, '\\$&')}"`).join(',')}}`

// The entries of an import file.

/**
 * What became of an entry. 0: nothing changed, 1: something was added, 2: a tag, an attribute or the externalId was replaced or removed.
 * Two entries of one member have the same outcome in a batch.
 */
export type EntryOutcome = number | Error

/**
 * Sets the externalId, tags and attributes of each entry, in one transaction and as updateMembers. Other fields are ignored.
 * @param entries parsed ones, or the errors of those that cannot be parsed
 * @param isCsv whether a spreadsheet may have changed them
 */
export async function importEntries(
  database: Queryable,
  send: SendPipeline,
  scope: Scope,
  entries: unknown[],
  isCsv = false,
): Promise<EntryOutcome[]> {
  const members = await findMembers(database, scope, entries)
  const checked = entries.map((entry) => errorOr(() => checkEntry(entry, members, isCsv)))
  const updates = checked.flatMap((update) => (update instanceof Error ? [] : [update]))
  const outcomes = await updateMembers(send, scope, updates)
  return checked.map((update) => {
    if (update instanceof Error) return update
    return outcomes.get(update.id) ?? new AppError('unknown_member')
  })
}

function errorOr<T>(check: () => T): T | Error {
  try {
    return check()
  } catch (error) {
    return error as Error
  }
}

function checkEntry(entry: unknown, members: Map<string, FoundMember>, isCsv: boolean): UpdateById {
  if (entry instanceof Error) throw entry
  if (!isObject(entry)) throw new FatalError('the entry is not a JSON object')
  const { externalId, tags, attributes } = entry
  const id = memberIdOf(entry, members)
  const { external_id: stored = null } = members.get(String(entry.userId)) ?? {}
  // A spreadsheet shows 00123 as 123.
  if (isCsv && externalId !== stored && /^0/.test(stored ?? '') && stored?.replace(/^0+/, '') === externalId)
    throw new FatalError('externalId is the stored one without its zeros: format its column as text')
  const given = Object.entries({ externalId, tags, attributes }).filter(([, value]) => value !== undefined)
  return { id, update: checkUpdate(Object.fromEntries(given)) }
}

/** A file from another system may contain that system's ids, so an id must belong to the entry's user id. */
function memberIdOf({ id, userId }: Record<string, unknown>, members: Map<string, FoundMember>): bigint {
  // JSON.parse has already rounded a number beyond 2^53.
  const isExact = typeof id === 'string' || Number.isSafeInteger(id)
  const givenId = isExact ? parsePathId(String(id)) : null
  if (id !== undefined && givenId === null)
    throw new FatalError(
      'the id is not a 64-bit integer: write it as text, or leave it out: userId is enough',
    )
  if (userId === undefined && givenId !== null) return givenId
  if (typeof userId !== 'string' || userId === '')
    throw new FatalError('the entry has neither a userId nor an id')
  const memberId = members.get(userId)?.id
  if (memberId === undefined) throw new AppError('unknown_member')
  if (givenId !== null && givenId !== memberId) {
    throw new FatalError('its id is not that of its userId: leave it out, because userId is enough')
  }
  return memberId
}

type FoundMember = { id: bigint; user_id: string; external_id: string | null }

const selectMembers = statement('member-ids-by-user')`select id, user_id, external_id from audience_member
          where channel_oa_id = $1 and organization_id = $2 and user_id = any ($3::text[])`

async function findMembers(
  database: Queryable,
  scope: Scope,
  entries: unknown[],
): Promise<Map<string, FoundMember>> {
  const userIds = entries.flatMap((entry) => {
    const { userId } = isObject(entry) ? entry : {}
    return typeof userId === 'string' && isStorableText(userId) ? [userId] : []
  })
  if (userIds.length === 0) return new Map()
  const { accountId, organizationId } = scope
  const values = [accountId, organizationId, textArray(userIds)]
  const members = await database.query<FoundMember>(selectMembers, values)
  return new Map(members.map((member) => [member.user_id, member]))
}
