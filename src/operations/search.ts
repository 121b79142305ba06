/**
 * One search for everything that has a name or an id, in all accounts that an operator may see. An index finds user ids and external
 * ids in all accounts. The index of names begins with the account, so a search walks through the accounts, some at a time. Between two
 * statements, the console's connection serves other operators. A walk that takes too long ends early, and the result is marked as
 * incomplete. list-events.ts finds the event of a webhook event id.
 */
import { type Member, memberJson, withTrackedActivity } from '../audience/member.ts'
import { INT64_MIN, parsePathId } from '../http/path-id.ts'
import { type AccountId, LINE_USER_ID } from '../ids.ts'
import { ulidKey } from '../intake/event-fields.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Activity, listActivityOfRequest } from '../operators/list-activity.ts'
import { STATEMENT_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { type Queryable, type Row, type Statement, statement } from '../postgres/statement.ts'

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
  hasMore: boolean
  isComplete: boolean
}

export interface Search {
  reads: Queryable
  /** trimmed and not empty */
  text: string
  organizationIds: OrganizationIds
  walkMaxMs?: number
  /** ends the search if nobody waits for it */
  signal?: AbortSignal
}

export async function search(wanted: Search): Promise<SearchResult> {
  const accounts = await searchAccounts(wanted)
  const people = await searchPeople(wanted)
  return {
    accounts: accounts.slice(0, ACCOUNTS_MAX),
    people: people.found.slice(0, PEOPLE_MAX),
    activity: await searchActivity(wanted),
    hasMore: accounts.length > ACCOUNTS_MAX || people.found.length > PEOPLE_MAX || people.hasMore,
    isComplete: people.isComplete,
  }
}

// The statements. $1 is always the list of organizations that the operator may see (bigint[]; null: all). `offset 0` makes a join one
// index lookup per row. Planner idioms: docs/planner.md.

const ACCOUNT_OF_MEMBER = `
      join lateral (
        select id, name from official_account a where a.id = m.channel_oa_id and visible(a.organization_id, $1) offset 0) a on true`

/** Driven by audience_member_any_user. $2 user ids text[]; $3 maximum number of rows int */
const selectByUserIds = statement('search-by-user-ids')`
    select a.id as "accountId", a.name as "accountName", ${memberJson} as json
      from (select * from audience_member
             where hashtextextended(user_id, 0) = any (array(select hashtextextended(id, 0) from unnest($2::text[]) id))
            offset 0) m ${ACCOUNT_OF_MEMBER} ${withTrackedActivity}
     where m.user_id = any ($2)
     limit $3`

/** Driven by audience_member_any_external_id. $2 external id text; $3 maximum number of rows int */
const selectByExternalId = statement('search-by-external-id')`
    select a.id as "accountId", a.name as "accountName", ${memberJson} as json
      from (select * from audience_member
             where external_id is not null and hashtextextended(external_id, 0) = hashtextextended($2, 0)
            offset 0) m ${ACCOUNT_OF_MEMBER} ${withTrackedActivity}
     where m.external_id = $2
     limit $3`

/** Without a limit, a statement of an operator who sees few accounts would read all of them. */
const EXAMINED_MAX = 2_000

/**
 * Driven by audience_member_name, whose n-grams contain the account. `+ 0` prevents the use of other indexes, which would return all
 * members of the account. `next` is the account after which the next statement begins; null: there are no more accounts.
 * $2 after this account id; $3 accounts; $4 part of the display name; $5 maximum number of rows
 */
const selectByName = statement('search-by-name')`
    with examined as materialized (
      select id, organization_id, name from official_account where id > $2 order by id limit ${EXAMINED_MAX}
    ), visible as materialized (
      select id, name from examined a where visible(a.organization_id, $1) order by id limit $3
    ), next as (
      select case when (select count(*) from visible) = $3 then (select max(id) from visible)
                  when (select count(*) from examined) = ${EXAMINED_MAX} then (select max(id) from examined)
             end as id
    )
    select next.id as next, found.*
      from next
      left join (
        select a.id as "accountId", a.name as "accountName", ${memberJson} as json
          from visible a
         cross join lateral (
           select * from audience_member
            where display_name is not null and name_ngrams(channel_oa_id, display_name) @> part_ngrams(a.id, $4)
              and channel_oa_id + 0 = a.id and strpos(lower(display_name), lower($4)) > 0
            limit $5) m ${withTrackedActivity}
         limit $5) found on true`

/** Reads all accounts. $2 text; $3 account id bigint or null; $4 maximum number of rows int */
const selectAccounts = statement('search-visible-accounts')`
    select a.id, a.name, a.basic_id as "basicId", a.channel_id as "channelId", o.name as "organizationName"
      from (select id, organization_id, name, basic_id, channel_id, login_channel_ids, bot_user_id,
                   strpos(lower(name), lower($2)) as position, strpos(lower(basic_id), lower($2)) as basic_position
              from official_account a where visible(a.organization_id, $1) offset 0) a
      join lateral (select name from organization where id = a.organization_id offset 0) o on true
     where a.id = $3 or $2 in (a.channel_id, a.bot_user_id) or $2 = any (a.login_channel_ids) or a.position > 0 or a.basic_position > 0
     order by a.position = 0 and coalesce(a.basic_position, 0) = 0 desc, a.position = 1 desc, a.name, a.id
     limit $4`

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
