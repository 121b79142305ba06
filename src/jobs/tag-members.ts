/**
 * `members.tag`: adds and removes tags of all members that match a filter.
 *
 * "All that match" are the members that existed when the job started and match when their page is read. The walk is by id, so each
 * member is changed at most once. A member that begins to match behind the position stays unchanged, like one that joins later.
 * Planner idioms: docs/planner.md.
 */

import type { AccountId } from '../accounts/account.ts'
import type { AccountDetails } from '../accounts/accounts.ts'
import type { Scope } from '../accounts/scope.ts'
import type { Filters } from '../audience/filters.ts'
import { type IdPosition, readIds } from '../audience/select-list.ts'
import { TAGS_MAX } from '../audience/update.ts'
import { lockMembers, updateMembers } from '../audience/update-members.ts'
import { AppError } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { Actor } from '../operators/actor.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { pipelineIn, type Queryable, statement } from '../postgres/statement.ts'
import { type Job, startJob } from './job.ts'
import type { RunStep } from './step.ts'

/** Members per transaction. A delivery about one of them waits until the commit: 250 × 0.2 ms = 50 ms. */
const BATCH_MEMBERS = 250
/** The number of matching members may differ by this part from the number that the operator confirmed, because people come and go. */
const COUNT_TOLERANCE = 0.01

interface TagChange {
  add: string[]
  remove: string[]
}

/** Members, as parameters of a job. */
interface Selection {
  filters: Filters
  /** the filters without personal text, which stay after the end of the job */
  matching: Record<string, unknown>
  /** members with greater ids joined after the start */
  untilId: string
}

interface Position {
  id: string
  isCommonName: boolean
}

interface Tally {
  changed: number
  /** they have the tags, or lack them, already */
  unchanged: number
  /** they would have more than TAGS_MAX tags */
  refused: number
}

/** $1 account id bigint */
export const selectLastMember = statement('last-member-id')`
    select id from audience_member where channel_oa_id = $1 order by id desc limit 1`

interface Counted {
  /** members that match now */
  count: number
  /** the number that the operator confirmed */
  expected: number
}

/** Call it in a transaction. Throws `count_changed`. */
export async function startTagging(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Pick<AccountDetails, 'id' | 'organizationId'>,
  { filters, add, remove }: TagChange & { filters: Filters },
  counted: Counted,
): Promise<bigint> {
  const selection = await select(transaction, accountId, filters, counted)
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

/** For a job over all members that match. Throws `count_changed`. */
export async function select(
  transaction: Queryable,
  accountId: AccountId,
  filters: Filters,
  { count, expected }: Counted,
): Promise<Selection> {
  requireExpected(count, expected)
  const [last] = await transaction.query<{ id: bigint }>(selectLastMember, [accountId])
  return { filters, matching: publicFilters(filters), untilId: String(last?.id ?? INT64_MIN) }
}

/** Below 100 members, the number must be the same. */
function requireExpected(count: number, expected: number): void {
  if (Math.abs(count - expected) <= Math.floor(expected * COUNT_TOLERANCE)) return
  throw new AppError('count_changed', {
    message: `The filter matches ${count} members now, not ${expected}. Check the number and confirm again.`,
  })
}

/** Names and ids of people are replaced, so that the activity log and finished jobs contain no personal text. */
export function publicFilters({
  relationship,
  tag,
  segment,
  userId,
  externalId,
  q,
}: Filters): Record<string, unknown> {
  const given = (value: string | undefined) => (value === undefined ? undefined : 'given')
  const people = { userId: given(userId), externalId: given(externalId), q: given(q) }
  const filters = { relationship, tag, segment: segment?.name, ...people }
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== undefined))
}

export const tagMembers: RunStep = async (job, { commit }) => {
  const { add, remove } = job.parameters as TagChange
  await commit(async (transaction) => {
    const { ids, position } = await readSelected(transaction, job, BATCH_MEMBERS)
    const counts = await changeTags(transaction, scopeOfJob(job), ids, { add, remove })
    return { position, done: job.done + BigInt(ids.length), tally: addCounts(job.tally as Tally, counts) }
  })
}

/** The next members of a job's selection. `position` is null after the last one. */
export async function readSelected(
  database: Queryable,
  job: Job,
  limit: number,
): Promise<{ ids: bigint[]; position: Position | null }> {
  const { filters, untilId } = job.parameters as Selection
  const before = job.position as Position | null
  const from: IdPosition = {
    kind: 'id',
    id: before === null ? INT64_MIN : BigInt(before.id),
    isCommonName: before?.isCommonName ?? false,
  }
  const { ids, next } = await readIds(database, scopeOfJob(job), filters, from, limit)
  const isLast = next === null || next.id > BigInt(untilId)
  return {
    ids: ids.filter((id) => id <= BigInt(untilId)),
    position: isLast ? null : { id: String(next.id), isCommonName: next.isCommonName },
  }
}

/** Jobs over members always belong to an account. */
export function scopeOfJob({
  accountId,
  organizationId,
  actorName,
}: Pick<Job, 'accountId' | 'organizationId'> & Partial<Pick<Job, 'actorName'>>): Scope {
  if (accountId === null || organizationId === null) throw new Error('the job has no account')
  return { keyId: null, ...(actorName !== undefined && { actorName }), accountId, organizationId }
}

function addCounts(before: Partial<Tally>, added: Tally): Tally {
  const { changed = 0, unchanged = 0, refused = 0 } = before
  return {
    changed: changed + added.changed,
    unchanged: unchanged + added.unchanged,
    refused: refused + added.refused,
  }
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
