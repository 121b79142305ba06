import type { Scope } from '../accounts/scope.ts'
import { booleanArray, int8Array, textArray } from '../postgres/binary-array.ts'
import { type SendPipeline, statement } from '../postgres/statement.ts'
import { CHANGES, type MemberUpdate, updateError } from './update.ts'

export interface UpdateById {
  id: bigint
  update: MemberUpdate
}

/** $1 text: the API key's id, $2 text: the name of the operator or command, or empty. The trigger record_member_edit reads both. */
const setEditor = statement('set-editor')`
    select set_config('oa_audience.api_key_id', $1, true), set_config('oa_audience.actor', $2, true)`

/**
 * $1 bigint: account; $2 bigint: organization; $3 bigint[]: members.
 *
 * Locks members as an update does, in the order of flushes. In the order of the file, an import and a flush could deadlock. The
 * lateral subqueries read each member by the primary key. Without statistics, a join would read the whole account. See docs/planner.md.
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
                   u.attributes::jsonb as attributes
              from unnest($3::bigint[], $4::boolean[], $5::text[], $6::boolean[], $7::text[], $8::boolean[], $9::text[])
                   with ordinality as u (id, sets_external_id, external_id, sets_tags, tags, sets_attributes, attributes,
                                         position)
             cross join lateral (
               select ctid, version from audience_member
                where channel_oa_id = $1 and organization_id = $2 and id = u.id offset 0) x
             order by u.position offset 0) e
     where m.ctid = e.ctid
    returning m.id, m.version <> e.version as "isChanged"`

/**
 * Changes members of the scope in the given order, in one transaction. Returns the ids of those that exist, and whether they changed.
 * If one update fails, no member is changed, and this throws `external_id_taken` or the database's error.
 */
export async function updateMembers(
  send: SendPipeline,
  scope: Scope,
  updates: UpdateById[],
): Promise<Map<bigint, boolean>> {
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
  const [, , ...updated] = results as Array<Array<{ id: bigint; isChanged: boolean }>>
  const changes = new Map<bigint, boolean>()
  for (const { id, isChanged } of updated.flat()) changes.set(id, isChanged || changes.get(id) === true)
  return changes
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
