/**
 * All stored events that an operator may see, the newest first. A statement follows an index, examines a bounded number of events, and
 * then applies the filter, so a page may be empty although another one follows.
 */
import { findAccountDetails } from '../accounts/accounts.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { readTimeUs } from '../http/times.ts'
import { refuseInput } from '../http/validate.ts'
import type { AccountId } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, type Row, type Statement, statement } from '../postgres/statement.ts'
import { ulidKey } from './event-fields.ts'
import type { EventNames, EventSummary } from './stored-events.ts'

/** Events or accounts that one statement examines, for which other pages wait: 2,000 × 5 µs = 10 ms. */
const EXAMINED_MAX = 2_000
/** Of one page. 10 × 2,000 events. */
const STATEMENTS_MAX = 10
/** Accounts of an operator that are read one by one. With more of them, the events of all accounts are examined. */
const MERGED_ACCOUNTS_MAX = 20

export type ListedEvent = EventSummary & EventNames

export const EVENT_STATUSES = ['failed', 'set-aside'] as const

export interface EventFilter {
  account?: AccountId
  kind?: string
  /** also of people who joined or left */
  user?: string
  from?: string
  to?: string
  status?: (typeof EVENT_STATUSES)[number]
  failure?: string
  key?: string
}

/** `next`: after which the next page begins; null: it is the last one. */
export type EventPage = { events: ListedEvent[]; next: string | null }

type Position = { us: bigint; id: bigint }

type Read = { events: ListedEvent[]; next: Position | null }

/** The end of the year 9999. */
export const BEGINNING: Position = { us: 253_402_300_799_999_999n, id: INT64_MAX }

/** Throws NotVisible for an account that the operator does not see, and `invalid_input`. */
export async function listAllEvents(
  reads: Queryable,
  organizationIds: OrganizationIds,
  filter: EventFilter,
  { before, limit }: { before: string | null; limit: number },
): Promise<EventPage> {
  const accounts = await accountsToRead(reads, organizationIds, filter.account)
  const read = readerOf(reads, organizationIds, filter, accounts)
  const events: ListedEvent[] = []
  let position: Position | null = before === null ? BEGINNING : readPosition(before)
  for (let count = 0; count < STATEMENTS_MAX && position !== null && events.length < limit; count += 1) {
    const page: Read = await read(position, limit - events.length)
    events.push(...page.events)
    position = page.next
  }
  return { events, next: position && `${position.us}.${position.id}` }
}

/** Null: too many to read one by one. */
async function accountsToRead(
  reads: Queryable,
  organizationIds: OrganizationIds,
  account: AccountId | undefined,
): Promise<AccountId[] | null> {
  if (account !== undefined) return [(await findAccountDetails(reads, organizationIds, account)).id]
  if (organizationIds === null) return null
  const values = [organizationIds, MERGED_ACCOUNTS_MAX + 1]
  const accounts = await reads.query<{ id: AccountId }>(selectAccountIds, values)
  return accounts.length > MERGED_ACCOUNTS_MAX ? null : accounts.map(({ id }) => id)
}

function readerOf(
  reads: Queryable,
  organizationIds: OrganizationIds,
  filter: EventFilter,
  accounts: AccountId[] | null,
): (before: Position, limit: number) => Promise<Read> {
  const { kind = null, user = null, failure = null, status, key } = filter
  const range = [
    filter.from === undefined ? 0n : readTimeUs('from', filter.from),
    filter.to === undefined ? BEGINNING.us : readTimeUs('to', filter.to),
  ]
  const isFailed = status !== undefined || failure !== null
  const isSetAside = isFailed ? status === 'set-aside' : null

  const by =
    (statement: Statement, own: unknown[] = [], examined = EXAMINED_MAX) =>
    async ({ us, id }: Position, limit: number): Promise<Read> => {
      const filters = [organizationIds, kind, user, failure, isSetAside, limit, ...range]
      const values = [Math.max(examined, limit), ...filters, us, id, ...own]
      return readOf(await reads.query<EventRow>(statement, values), limit)
    }
  if (key !== undefined) return by(selectByKey, [accounts, keyOf(key)])
  // Without another filter, every event that is examined matches.
  const isExact = kind === null && user === null && failure === null
  const share = isExact ? 0 : Math.floor(EXAMINED_MAX / (accounts?.length || 1))
  if (isFailed && accounts !== null) return by(selectFailedOfAccounts, [accounts], share)
  if (isFailed) return by(selectFailed)
  if (user !== null) return by(selectOfPerson, [accounts])
  if (accounts !== null) return by(selectOfAccounts, [accounts], share)
  const readWindow = by(selectWindow)
  return async (before, limit) => {
    const [newest] = before.id === INT64_MAX ? await reads.query<{ id: bigint }>(selectLastId) : []
    const end = newest === undefined ? before : { ...before, id: newest.id + 1n }
    const { events, next } = await readWindow(end, limit)
    if (events.length === limit) return { events, next }
    const start = end.id - BigInt(EXAMINED_MAX)
    const id = events.length > 0 ? start : await skipGap(reads, start, range)
    return { events, next: id > 0n ? { ...end, id } : null }
  }
}

type EventRow = Row &
  ListedEvent & { us: bigint; position: bigint; nextUs: bigint | null; nextPosition: bigint | null }

/** One row without an event has the position of the last one examined. */
function readOf(rows: EventRow[], limit: number): Read {
  const found = rows.filter(({ id }) => id !== null)
  const events = found.map(({ us, position, nextUs, nextPosition, ...event }) => event)
  const last = found.at(-1)
  if (found.length === limit && last) return { events, next: { us: last.us, id: last.position } }
  const { nextUs = null, nextPosition = null } = rows[0] ?? {}
  return { events, next: nextUs === null || nextPosition === null ? null : { us: nextUs, id: nextPosition } }
}

/** Returns an id below which events follow, or 0. Dropped partitions, restores and the range leave gaps: 10 billion ids take 23 lookups. */
async function skipGap(reads: Queryable, end: bigint, range: bigint[]): Promise<bigint> {
  const hasAny = async (from: bigint, to: bigint): Promise<boolean> => {
    const [row] = await reads.query<{ hasEvents: boolean }>(hasEvents, [from, to, ...range])
    return row?.hasEvents === true
  }
  const width = BigInt(EXAMINED_MAX)
  if (await hasAny(end - width, end)) return end
  if (!(await hasAny(0n, end))) return 0n
  let [low, high] = [0n, end]
  while (high - low > width) {
    const middle = (low + high) / 2n
    if (await hasAny(middle, high)) low = middle
    else high = middle
  }
  return high
}

function keyOf(text: string): string {
  return ulidKey(text)?.toString('hex') ?? refuseInput('key', 'must be a webhook event id of LINE')
}

export function readPosition(text: string): Position {
  const [us = 0n, id = 0n] = text.split('.').map(BigInt)
  if (id > INT64_MAX || id < INT64_MIN) refuseInput('after', 'must be the end of another page')
  return { us, id }
}

const at = (parameter: string) => `timestamptz 'epoch' + ${parameter}::bigint * interval '1 microsecond'`

/**
 * Parameters of all statements: $1 events to examine int; $2 organization ids bigint[], null: all; $3 kind text, $4 user id text,
 * $5 reason text, $6 whether it was set aside boolean, null: any; $7 maximum number of events int; $8 and $9 received from and before, in
 * microseconds bigint; $10 and $11 the position before which the page begins: microseconds, which statements by id keep, and id, bigint.
 */
const RANGE = `received_at >= ${at('$8')} and received_at < ${at('$9')}`
const COLUMNS =
  'id, channel_oa_id, source, kind, occurred_at, received_at, user_id, other_user_ids, failure, set_aside'
const BY_RECEIPT = `${COLUMNS}, (extract(epoch from received_at) * 1000000)::bigint as us, id as position`
const BY_ID = `${COLUMNS}, $10::bigint as us, id as position`
const NEWEST_RECEIVED = `${RANGE} and received_at <= ${at('$10')} and (received_at, id) < (${at('$10')}, $11::bigint)
          order by received_at desc, id desc limit $1`
const NEWEST = `${RANGE} and id < $11 order by id desc limit $1`

/** The events that match, and the position of the last one examined if there may be more. */
const MATCHING = `
    select next.us as "nextUs", next.position as "nextPosition", e.us, e.position, e.id, e.channel_oa_id as "accountId",
           e.name as "accountName", e.source, e.kind, iso(e.occurred_at) as "occurredAt", iso(e.received_at) as "receivedAt",
           e.user_id as "userId", m.display_name as "displayName", e.failure, e.set_aside as "setAside"
      from (select) page
      left join (select us, position from examined order by us desc, position desc limit 1 offset $1::int - 1) next on true
      left join (
        select e.*, a.name
          from examined e
          join lateral (select name, organization_id from official_account where id = e.channel_oa_id offset 0) a
            on visible(a.organization_id, $2)
         where e.id is not null and ($3::text is null or e.kind = $3) and ($5::text is null or e.failure = $5)
           and ($4::text is null or e.user_id = $4 or e.other_user_ids @> array[$4])
           and ($6::boolean is null or e.failure is not null and (e.set_aside is not null) = $6)
         order by e.us desc, e.position desc limit $7::int) e on true
      left join lateral (
        select display_name from audience_member where channel_oa_id = e.channel_oa_id and user_id = e.user_id offset 0) m on true
     order by e.us desc, e.position desc`

/** Driven by event_account and tracking_event_account. $12 account ids bigint[] */
const selectOfAccounts = statement('events-of-accounts')`
    with examined as materialized (
      select ${BY_RECEIPT}
        from unnest($12::bigint[]) account
       cross join lateral (
         select ${COLUMNS} from stored_event
          where channel_oa_id = account and received_at > '-infinity' and ${NEWEST_RECEIVED}) e
       order by received_at desc, id desc limit $1
    ) ${MATCHING}`

/** Driven by event_user and event_other_users, which `offset 0` keeps apart from the index of times. $12 account ids bigint[], null: all */
const selectOfPerson = statement('events-of-person')`
    with examined as materialized (
      select ${BY_RECEIPT}
        from (select ${COLUMNS} from stored_event
               where (user_id = $4 or other_user_ids @> array[$4]) and ($12::bigint[] is null or channel_oa_id = any ($12))
              offset 0) e
       where ${NEWEST_RECEIVED}
    ) ${MATCHING}`

/** Driven by event_failure or event_set_aside. $12 account ids bigint[] */
const selectFailedOfAccounts = statement('failed-events-of-accounts')`
    with examined as materialized (
      select ${BY_ID}
        from unnest($12::bigint[]) account
       cross join lateral (
         (select ${COLUMNS} from event
           where $6 = false and channel_oa_id = account and failure is not null and set_aside is null and ${NEWEST})
         union all
         (select ${COLUMNS} from event where $6 and channel_oa_id = account and set_aside is not null and ${NEWEST})) e
       order by id desc limit $1
    ) ${MATCHING}`

/** Driven by event_failure_id, whose condition it repeats. */
const selectFailed = statement('failed-events')`
    with examined as materialized (select ${BY_ID} from event where failure >= '' and ${NEWEST}) ${MATCHING}`

/** Driven by event_key and event_account: one transaction stores a key and its event. $12 account ids bigint[], null: all; $13 key uuid */
const selectByKey = statement('events-by-key')`
    with examined as materialized (
      select e.*, a.id as channel_oa_id, $10::bigint as us, a.id as position
        from (select id
                from (select unnest($12::bigint[]) as id
                       union all
                      (select id from official_account where $12 is null and id < $11 order by id desc limit $1)) account
               where id < $11 order by id desc limit $1) a
        left join lateral (
          select received_at from event_key where channel_oa_id = a.id and key = $13 offset 0) k on true
        left join lateral (
          select id, source, kind, occurred_at, received_at, user_id, other_user_ids, failure, set_aside from event
           where channel_oa_id = a.id and received_at > '-infinity' and received_at = k.received_at and key = $13 and ${RANGE}
          offset 0) e on true
    ) ${MATCHING}`

/** Driven by the BRIN indexes. Each id of the window is examined. */
const selectWindow = statement('events-in-window')`
    with examined as materialized (
      select ${BY_ID} from stored_event where id >= $11::bigint - $1::int and id < $11 and ${RANGE}
    ) ${MATCHING}`

const hasEvents = statement('has-events')`
    select exists (
      select from stored_event
       where id >= $1 and id < $2 and received_at >= ${at('$3')} and received_at < ${at('$4')}) as "hasEvents"`

const selectLastId = statement('last-event-id')`
    select coalesce(pg_sequence_last_value(pg_get_serial_sequence('event', 'id')::regclass), 0) as id`

const selectAccountIds = statement('account-ids-of-organizations')`
    select id from official_account where organization_id = any ($1) limit $2`
