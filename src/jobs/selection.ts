/**
 * The members of a job that match a filter: those that existed when the job started and match when their page is read. The walk is by
 * id, so each is visited at most once. A member that begins to match behind the position stays unchanged, like one that joins later.
 */
import { type Scope, scopeOfAccount } from '../accounts/scope.ts'
import { recordable } from '../audience/condition.ts'
import type { Filters } from '../audience/filters.ts'
import { type IdPosition, readIds } from '../audience/list-pages.ts'
import { AppError } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { AccountId } from '../ids.ts'
import { counted } from '../observability/one-line.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Job } from './job.ts'

/** The number of matching members may differ by this part from the number that the operator confirmed, because people come and go. */
const COUNT_TOLERANCE = 0.01

/** Members, as parameters of a job. */
export interface Selection {
  filters?: Filters
  /** Until 0.5.0, those with a source: an instance of 0.3.0 would ignore it and change all members. Without `filters`, its turn fails. */
  settings?: Filters
  /** the filters without personal text, which stay after the end of the job */
  matching: Record<string, unknown>
  /** members with greater ids joined after the start */
  untilId: string
}

interface Position {
  id: string
  isCommonName: boolean
}

/** $1 account id bigint */
const selectLastMember = statement('last-member-id')`
    select id from audience_member where channel_oa_id = $1 order by id desc limit 1`

/** Begins a job over all members that match. */
export async function selectMembers(
  transaction: Queryable,
  accountId: AccountId,
  filters: Filters,
): Promise<Selection> {
  const [last] = await transaction.query<{ id: bigint }>(selectLastMember, [accountId])
  const { sourceAny, campaignAny } = filters.segment?.condition ?? {}
  const hasSource = [filters.source, sourceAny, campaignAny].some((part) => part !== undefined)
  const selected = hasSource ? { settings: filters } : { filters }
  return { ...selected, matching: publicFilters(filters), untilId: String(last?.id ?? INT64_MIN) }
}

export interface Counted {
  /** members that match now */
  count: number
  /** the number that the operator confirmed */
  expected: number
}

/** Throws `count_changed`. Below 100 members, the number must be the same. */
export function requireExpected({ count, expected }: Counted): void {
  if (Math.abs(count - expected) <= Math.floor(expected * COUNT_TOLERANCE)) return
  throw new AppError('count_changed', {
    message: `The filter matches ${counted(count, 'member')} now, not ${expected}. Check the number and confirm again.`,
  })
}

/** Names and ids of people are replaced, so that the activity log and finished jobs contain no personal text. */
export function publicFilters({
  relationship,
  tag,
  source,
  segment,
  userId,
  externalId,
  q,
}: Filters): Record<string, unknown> {
  const given = (value: string | undefined) => (value === undefined ? undefined : 'given')
  const people = { userId: given(userId), externalId: given(externalId), q: given(q) }
  const condition = segment?.name === '' ? recordable(segment.condition) : undefined
  const named = segment?.name || undefined
  const filters = { relationship, tag, source, segment: named, condition, ...people }
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== undefined))
}

export const BEGINNING: Position = { id: String(INT64_MIN), isCommonName: false }

/** The next members of a job's selection. `position` is null after the last one. */
export async function readSelected(
  database: Queryable,
  job: Job,
  limit: number,
): Promise<{ ids: bigint[]; position: Position | null }> {
  const { filters, settings, untilId } = job.parameters as Selection
  const { id, isCommonName } = (job.position as Position | null) ?? BEGINNING
  const from: IdPosition = { kind: 'id', id: BigInt(id), isCommonName }
  const wanted = settings ?? filters
  // No filters at all would be all members.
  if (wanted === undefined) throw new Error('the job has no filters')
  const { ids, next } = await readIds(database, scopeOfJob(job), wanted, from, limit)
  const isLast = next === null || next.id > BigInt(untilId)
  return {
    ids: ids.filter((each) => each <= BigInt(untilId)),
    position: isLast ? null : { id: String(next.id), isCommonName: next.isCommonName },
  }
}

export function scopeOfJob({ accountId, organizationId, actorName }: Job): Scope {
  if (accountId === null || organizationId === null) throw new Error('the job has no account')
  return scopeOfAccount({ id: accountId, organizationId }, actorName)
}
