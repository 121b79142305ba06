/** `members.tag`: adds and removes tags of all members that match a filter. Planner idioms: docs/planner.md. */
import type { AccountDetails } from '../accounts/accounts.ts'
import type { Scope } from '../accounts/scope.ts'
import type { Filters } from '../audience/filters.ts'
import { TAGS_MAX } from '../audience/update.ts'
import { lockMembers, updateMembers } from '../audience/update-members.ts'
import type { Actor } from '../operators/actor.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { pipelineIn, type Queryable, statement } from '../postgres/statement.ts'
import { startJob } from './job.ts'
import { type Counted, readSelected, requireExpected, scopeOfJob, selectMembers } from './selection.ts'
import { addCounts, type RunStep } from './step.ts'

/** Members per transaction. A delivery about one of them waits until the commit: 250 × 0.2 ms = 50 ms. */
const BATCH_MEMBERS = 250

interface TagChange {
  add: string[]
  remove: string[]
}

/** Unchanged members have the tags, or lack them, already. Refused ones would have more than TAGS_MAX. */
type Tally = Record<'changed' | 'unchanged' | 'refused', number>

/** Call it in a transaction. Throws `count_changed`. */
export async function startTagging(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Pick<AccountDetails, 'id' | 'organizationId'>,
  { filters, add, remove }: TagChange & { filters: Filters },
  counted: Counted,
): Promise<bigint> {
  requireExpected(counted)
  const selection = await selectMembers(transaction, accountId, filters)
  const parameters = { ...selection, add, remove }
  return startJob(
    transaction,
    actor,
    { kind: 'members.tag', accountId, organizationId, parameters, total: counted.count },
    {
      action: 'members.tagged',
      object: { kind: 'account', id: accountId },
      changes: { filters: selection.matching, add, remove, members: counted.count },
    },
  )
}

export const tagMembers: RunStep = async (job, { commit }) => {
  const { add, remove } = job.parameters as TagChange
  await commit(async (transaction) => {
    const { ids, position } = await readSelected(transaction, job, BATCH_MEMBERS)
    const counts = await changeTags(transaction, scopeOfJob(job), ids, { add, remove })
    return { position, done: job.done + BigInt(ids.length), tally: addCounts(job.tally, counts) }
  })
}

/** $1 account id bigint, $2 organization id bigint, $3 member ids bigint[]. Run it after lock-members. */
const selectTags = statement('select-tags-of-members')`
    select m.id, m.tags
      from unnest($3::bigint[]) as u (id)
     cross join lateral (
       select id, tags from audience_member
        where channel_oa_id = $1 and organization_id = $2 and id = u.id offset 0) m`

type TagsOfMember = { id: bigint; tags: unknown[] }

async function changeTags(
  transaction: Queryable,
  scope: Scope,
  ids: bigint[],
  change: TagChange,
): Promise<Tally> {
  if (ids.length === 0) return { changed: 0, unchanged: 0, refused: 0 }
  const values = [scope.accountId, scope.organizationId, int8Array(ids)]
  const [, members] = (await pipelineIn(transaction)([
    { statement: lockMembers, values },
    { statement: selectTags, values },
  ])) as [unknown, TagsOfMember[]]
  const changes = members.map(({ id, tags: before }) => ({ id, before, tags: tagsAfter(before, change) }))
  const refused = changes.filter(({ before, tags }) => tags.length > TAGS_MAX && tags.length > before.length)
  const updates = changes
    .filter((member) => !refused.includes(member) && !isEqual(member.before, member.tags))
    .map(({ id, tags }) => ({ id, update: { tags } }))
  await updateMembers(pipelineIn(transaction), scope, updates)
  return {
    changed: updates.length,
    unchanged: ids.length - updates.length - refused.length,
    refused: refused.length,
  }
}

/** Other programs write tags with nulls or in two dimensions. */
function tagsAfter(before: unknown[], { add, remove }: TagChange): string[] {
  const kept = before.flat().filter((tag): tag is string => typeof tag === 'string' && !remove.includes(tag))
  return [...kept, ...add.filter((tag) => !kept.includes(tag))]
}

const isEqual = (before: unknown[], after: string[]) =>
  before.length === after.length && after.every((tag, index) => tag === before[index])
