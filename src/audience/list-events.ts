/**
 * All stored events that an operator may see, the newest first. A statement follows an index, examines a bounded number of events, and
 * then applies the filter, so a page may be empty although another one follows.
 */
import type { AccountId } from '../accounts/account.ts'
import { findAccountDetails } from '../accounts/accounts.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { readTime } from '../http/read-time.ts'
import { refuseInput } from '../http/validate.ts'
import { ulidKey } from '../intake/event-fields.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import type { Queryable, Row, Statement } from '../postgres/statement.ts'
import type { EventSummary } from './events.ts'
import {
  hasEvents,
  selectAccountIds,
  selectByKey,
  selectFailed,
  selectFailedOfAccounts,
  selectLastId,
  selectOfAccounts,
  selectOfPerson,
  selectWindow,
} from './list-event-statements.ts'

/** Events or accounts that one statement examines, for which other pages wait: 2,000 × 5 µs = 10 ms. */
const EXAMINED_MAX = 2_000
/** Of one page. 10 × 2,000 events. */
const STATEMENTS_MAX = 10
/** Accounts of an operator that are read one by one. With more of them, the events of all accounts are examined. */
const MERGED_ACCOUNTS_MAX = 20

export type ListedEvent = EventSummary & {
  accountName: string
  /** null: nobody, or erased */
  userId: string | null
}

export const EVENT_STATUSES = ['failed', 'set-aside'] as const

/** Undefined: any. */
export interface EventFilter {
  account?: AccountId
  kind?: string
  /** also of people who joined or left */
  user?: string
  from?: string
  /** exclusive */
  to?: string
  status?: (typeof EVENT_STATUSES)[number]
  /** why it was not applied */
  failure?: string
  /** LINE's webhook event id */
  key?: string
}

/** `next`: after which the next page begins; null: it is the last one. */
export type EventPage = { events: ListedEvent[]; next: string | null }

/** The time is in microseconds since 1970. */
type Position = { us: bigint; id: bigint }

/** `next` null: nothing older follows. */
type Read = { events: ListedEvent[]; next: Position | null }

/** No event was received later than in the year 9999. */
const BEGINNING: Position = { us: 253_402_300_799_999_999n, id: INT64_MAX }

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
    filter.from === undefined ? 0n : timeUs('from', filter.from),
    filter.to === undefined ? BEGINNING.us : timeUs('to', filter.to),
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
    const end = before.id === INT64_MAX ? { ...before, id: (await lastId(reads)) + 1n } : before
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

async function lastId(reads: Queryable): Promise<bigint> {
  const [row] = await reads.query<{ id: bigint | null }>(selectLastId, [])
  return row?.id ?? 0n
}

/**
 * Returns an id below which events follow, or 0. Ids are missing where partitions were dropped, before and after a restore, and
 * outside of the range of times: 10 billion of them take 23 lookups.
 */
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

const timeUs = (field: string, text: string): bigint => BigInt(readTime(field, text)) * 1_000n

function keyOf(text: string): string {
  return ulidKey(text)?.toString('hex') ?? refuseInput('key', 'must be a webhook event id of LINE')
}

function readPosition(text: string): Position {
  const [us = 0n, id = 0n] = text.split('.').map(BigInt)
  if (id > INT64_MAX || id < INT64_MIN) refuseInput('before', 'must be the end of another page')
  return { us, id }
}
