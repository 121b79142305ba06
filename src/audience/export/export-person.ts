/** Everything that is stored about one person of one account, as one JSON object. SECURITY.md lists its parts and what it leaves out. */
import type { AccountId } from '../../accounts/account.ts'
import { toJson } from '../../http/format.ts'
import { INT64_MIN } from '../../http/path-id.ts'
import { recordActivity } from '../../operators/activity.ts'
import type { Actor } from '../../operators/actor.ts'
import type { Queryable, Row, Transactions } from '../../postgres/statement.ts'
import { withoutOthers } from './others.ts'
import {
  type PersonEventRow,
  type SummaryRow,
  selectEdits,
  selectPersonActivity,
  selectPersonDeliveries,
  selectPersonEvents,
  selectSummary,
} from './person-statements.ts'

/** Raised when a part changes its meaning or disappears. */
const FORMAT_VERSION = 1
/** Rows per statement. */
const PAGE_ROWS = 2_000
/** Bytes of payloads, after which a page of events ends. One payload may have 1 MiB. */
const PAGE_BYTES = 4 * 1024 * 1024

export interface Person {
  account: { id: AccountId; organizationId: bigint }
  userId: string
  /** null: not a member */
  memberId: bigint | null
  summary: SummaryRow
}

/** Returns null if nothing is stored about the person. */
export async function findPerson(
  database: Queryable,
  account: Person['account'],
  userId: string,
): Promise<Person | null> {
  const [summary] = await database.query<SummaryRow>(selectSummary, [account.id, userId])
  if (summary === undefined) return null
  const { member_id: memberId, tracked_activity, erased_at, is_erasure_pending, has_events } = summary
  const isStored = memberId !== null || tracked_activity !== null || erased_at !== null || is_erasure_pending
  return isStored || has_events ? { account, userId, memberId, summary } : null
}

/**
 * Yields a JSON array with the object of each account in which something is stored about the person.
 * @param record stores the entry of the activity log, before the first part of a person
 */
export async function* personInAccounts(
  database: Queryable,
  accounts: Array<Person['account']>,
  userId: string,
  record: (person: Person) => Promise<void>,
): AsyncGenerator<{ text: string }> {
  let before = '['
  for (const account of accounts) {
    const person = await findPerson(database, account, userId)
    if (person === null) continue
    await record(person)
    yield { text: before }
    yield* personJson(database, person)
    before = ','
  }
  yield { text: before === '[' ? '[]\n' : ']\n' }
}

/** Yields the object in parts, each of which is read when the one before it is used. */
export async function* personJson(database: Queryable, person: Person): AsyncGenerator<{ text: string }> {
  yield { text: beginningOf(person) }
  for (const [name, pages] of Object.entries(LISTS)) {
    let before = `,"${name}":[`
    for await (const items of pages(database, person)) {
      if (items.length === 0) continue
      yield { text: before + items.join(',\n') }
      before = ',\n'
    }
    yield { text: before === ',\n' ? ']' : `${before}]` }
  }
  yield { text: '}\n' }
}

function beginningOf({ account, userId, summary }: Person): string {
  const { generated_at: generatedAt, erased_at: erasedAt, is_erasure_pending: isPending } = summary
  const { id, organizationId } = account
  const head = toJson({
    formatVersion: FORMAT_VERSION,
    generatedAt,
    account: { id, name: summary.account_name, organizationId },
    userId,
  })
  const erasures = [
    ...(erasedAt === null ? [] : [{ erasedAt, status: isPending ? 'pending' : 'done' }]),
    ...(erasedAt === null && isPending ? [{ erasedAt: null, status: 'pending' }] : []),
  ]
  const { member, tracked_activity: trackedActivity } = summary
  return `${head.slice(0, -1)},\n"member":${member},\n"trackedActivity":${trackedActivity},\n"erasures":${toJson(erasures)}`
}

/** Pages of JSON texts. */
type Pages = (database: Queryable, person: Person) => AsyncGenerator<string[]>

const LISTS: Record<string, Pages> = { edits, events, deliveries, activity }

async function* edits(database: Queryable, { account, memberId }: Person): AsyncGenerator<string[]> {
  if (memberId === null) return
  yield* byId((after) => database.query(selectEdits, [account.id, memberId, after, PAGE_ROWS]))
}

async function* activity(database: Queryable, { account, memberId }: Person): AsyncGenerator<string[]> {
  if (memberId === null) return
  yield* byId((after) =>
    database.query(selectPersonActivity, [account.id, String(memberId), after, PAGE_ROWS]),
  )
}

async function* byId(
  read: (after: bigint) => Promise<Array<Row & { id: bigint }>>,
): AsyncGenerator<string[]> {
  for (let after: bigint | undefined = INT64_MIN; after !== undefined; ) {
    const rows: Array<Row & { id: bigint }> = await read(after)
    yield rows.map(toJson)
    after = rows.at(-1)?.id
  }
}

async function* events(database: Queryable, { account, userId }: Person): AsyncGenerator<string[]> {
  for (let after: { us: bigint; id: bigint } | undefined = { us: 0n, id: INT64_MIN }; after !== undefined; ) {
    const values = [account.id, userId, after.us, after.id, PAGE_ROWS, PAGE_BYTES]
    const rows: PersonEventRow[] = await database.query(selectPersonEvents, values)
    yield rows.map((row) => eventJson(row, userId))
    after = rows.at(-1)
  }
}

/** The payload is embedded as text, because it is JSON that a JavaScript number or string may not hold exactly. */
function eventJson({ us: _, payload, ...row }: PersonEventRow, userId: string): string {
  const content = payload === null ? 'null' : withoutOthers(row, userId, payload)
  return `${toJson(row).slice(0, -1)},"payload":${content}}`
}

async function* deliveries(database: Queryable, person: Person): AsyncGenerator<string[]> {
  const { account, userId, memberId } = person
  for (let after: bigint | null = INT64_MIN; after !== null; ) {
    const values: unknown[] = [account.id, userId, memberId, after, PAGE_ROWS]
    const [page]: DeliveryPage[] = await database.query(selectPersonDeliveries, values)
    yield (page?.deliveries ?? []).map(toJson)
    after = page?.last ?? null
  }
}

interface DeliveryPage extends Row {
  /** id of the last delivery that was read; null: none */
  last: bigint | null
  deliveries: object[] | null
}

/** Call it before the first byte. The user id is personal, so only the id of a member is recorded. */
export function recordPersonExport(
  database: Transactions,
  actor: Actor,
  { account: { id: accountId, organizationId }, memberId }: Person,
): Promise<void> {
  return recordActivity(database, actor, {
    action: 'member.exported',
    object: { kind: 'member', id: memberId },
    organizationId,
    accountId,
  })
}
