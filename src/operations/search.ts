/**
 * One search for everything that has a name or an id, in all accounts that an operator may see. An index finds user ids and external
 * ids in all accounts. The index of names begins with the account, so a search walks through the accounts, some at a time. Between two
 * statements, the console's connection serves other operators. A walk that takes too long ends early, and the result is marked as
 * incomplete. list-events.ts finds the event of a webhook event id.
 */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { LINE_USER_ID, type Member } from '../audience/member.ts'
import { INT64_MIN, parsePathId } from '../http/path-id.ts'
import { ulidKey } from '../intake/event-key.ts'
import { type Activity, listActivityOfRequest } from '../operators/list-activity.ts'
import { STATEMENT_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import type { Queryable, Row, Statement } from '../postgres/statement.ts'
import { selectAccounts, selectByExternalId, selectByName, selectByUserIds } from './search-statements.ts'

/** Of the search by a name. */
const WALK_MAX_MS = 1_000
/** Searching an account by name takes 1 ms, and 20 ms with a cold cache: 25 ms, and 0.5 s. */
const NAMES_PER_STATEMENT = 25
/** Shorter texts have no n-grams, so they find ids only. */
const NAME_PART_MIN_LENGTH = 2
const NAME_PART_MAX_LENGTH = 100
/** Rows of one walk. A member is 1 KiB of JSON without its attributes. */
const ROWS_MAX = 200
const PEOPLE_MAX = 20
const ACCOUNTS_MAX = 20
/** A request changes one object, or some with what belongs to it. */
const ACTIVITY_MAX = 20

export type FoundAccount = {
  id: AccountId
  name: string
  basicId: string | null
  channelId: string | null
  organizationName: string
}

interface Membership
  extends Pick<Member, 'displayName' | 'relationship' | 'externalId' | 'tags' | 'lastSeenAt'> {
  accountId: AccountId
  accountName: string
  memberId: string
}

export interface FoundPerson {
  userId: string
  memberships: Membership[]
}

export interface SearchResult {
  accounts: FoundAccount[]
  people: FoundPerson[]
  /** what a request of the console changed */
  activity: Activity[]
  /** accounts or people beyond the maximum were found */
  hasMore: boolean
  /** every account was searched */
  isComplete: boolean
}

interface SearchFor {
  /** trimmed and not empty */
  text: string
  /** null: all */
  organizationIds: OrganizationId[] | null
}

export interface SearchLimits {
  walkMaxMs?: number
  /** ends the search if nobody waits for it */
  signal?: AbortSignal
}

interface Search extends SearchFor, SearchLimits {
  reads: Queryable
}

export async function search(
  reads: Queryable,
  wanted: SearchFor,
  limits: SearchLimits = {},
): Promise<SearchResult> {
  const each = { reads, ...wanted, ...limits }
  const accounts = await searchAccounts(each)
  const people = await searchPeople(each)
  return {
    accounts: accounts.slice(0, ACCOUNTS_MAX),
    people: people.found.slice(0, PEOPLE_MAX),
    activity: await searchActivity(each),
    hasMore: accounts.length > ACCOUNTS_MAX || people.found.length > PEOPLE_MAX || people.hasMore,
    isComplete: people.isComplete,
  }
}

const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Every error of the console shows the id of its request. */
async function searchActivity({ reads, text, organizationIds }: Search): Promise<Activity[]> {
  if (!REQUEST_ID.test(text)) return []
  return listActivityOfRequest(reads, organizationIds, text, ACTIVITY_MAX)
}

/** A number may be the id of an account or of a channel. */
function searchAccounts({ reads, text, organizationIds }: Search): Promise<FoundAccount[]> {
  return reads.query(selectAccounts, [organizationIds, text, parsePathId(text), ACCOUNTS_MAX + 1])
}

/** An id is not searched as a part of a name, which takes up to a second. */
function isName(text: string): boolean {
  const isId = LINE_USER_ID.test(text) || ulidKey(text) !== null
  return !isId && [...text].length >= NAME_PART_MIN_LENGTH && text.length <= NAME_PART_MAX_LENGTH
}

interface MemberRow extends Row {
  accountId: AccountId
  accountName: string
  json: string
}

/** Everybody whom an id or a name finds, with all memberships. */
export async function searchPeople(each: Search) {
  const { reads, text, organizationIds } = each
  const read = (statement: Statement, value: unknown) =>
    reads.query<MemberRow>(statement, [organizationIds, value, ROWS_MAX])
  const found = [...(await read(selectByUserIds, [text])), ...(await read(selectByExternalId, text))]
  const named = isName(text) ? await walkAccounts(each) : NOTHING
  found.push(...named.found)
  const others = peopleOf(found).map(({ userId }) => userId)
  const memberships = others.length > 0 ? await read(selectByUserIds, others.slice(0, PEOPLE_MAX)) : []
  return {
    found: peopleOf([...found, ...memberships]),
    hasMore: named.hasMore || Math.max(found.length, memberships.length) >= ROWS_MAX,
    isComplete: named.isComplete,
  }
}

/** Each membership once, in the order in which the people were found. */
function peopleOf(rows: MemberRow[]): FoundPerson[] {
  const people = new Map<string, Map<AccountId, Membership>>()
  for (const { accountId, accountName, json } of rows) {
    const { userId, id, displayName, relationship, externalId, tags, lastSeenAt } = JSON.parse(json)
    const memberships = people.get(userId) ?? new Map()
    const shown = { displayName, relationship, externalId, tags, lastSeenAt }
    people.set(userId, memberships.set(accountId, { accountId, accountName, memberId: id, ...shown }))
  }
  return [...people].map(([userId, memberships]) => ({
    userId,
    memberships: [...memberships.values()].sort((a, b) => (a.accountId < b.accountId ? -1 : 1)),
  }))
}

interface Walk {
  found: MemberRow[]
  hasMore: boolean
  isComplete: boolean
}

const NOTHING: Walk = { found: [], hasMore: false, isComplete: true }

/** Walks through all accounts until enough is found, or the time is over. */
async function walkAccounts({
  reads,
  organizationIds,
  text,
  walkMaxMs = WALK_MAX_MS,
  signal,
}: Search): Promise<Walk> {
  const endsAtMs = performance.now() + walkMaxMs
  const found: MemberRow[] = []
  for (let after = INT64_MIN; ; ) {
    const values = [organizationIds, after, NAMES_PER_STATEMENT, text, ROWS_MAX]
    const rows = await reads
      .query<MemberRow & { next: bigint | null }>(selectByName, values)
      .catch(requireTimeout)
    if (rows === null) return { found, hasMore: false, isComplete: false }
    for (const { next: _, ...row } of rows) if (row.accountName !== null) found.push(row)
    const [{ next = null } = {}] = rows
    if (found.length >= ROWS_MAX || next === null) {
      return { found, hasMore: found.length >= ROWS_MAX, isComplete: true }
    }
    if (performance.now() >= endsAtMs || signal?.aborted) return { found, hasMore: false, isComplete: false }
    after = next
  }
}

/** A frequent part of a name in a very large account. What was found until then is still useful. */
function requireTimeout(error: unknown): null {
  if (sqlStateOf(error) !== STATEMENT_TIMEOUT) throw error
  return null
}
