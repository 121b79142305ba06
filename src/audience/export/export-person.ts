/** What is stored about one person of one account, as one JSON object. docs/personal-data.md lists its parts and what it leaves out. */
import type { AccountId } from '../../accounts/account.ts'
import { toJson } from '../../http/format.ts'
import { INT64_MIN } from '../../http/path-id.ts'
import { recordActivity } from '../../operators/activity.ts'
import type { Actor } from '../../operators/actor.ts'
import type { Queryable, Row, Transactions } from '../../postgres/statement.ts'
import { withoutOthers } from './others.ts'
import {
  type PersonEventRow,
  selectEdits,
  selectPersonActivity,
  selectPersonDeliveries,
  selectPersonEvents,
  selectSummary,
} from './person-statements.ts'

/** Rows per statement. */
const PAGE_ROWS = 2_000
/** Bytes of payloads, after which a page of events ends. One payload may have 1 MiB. */
const PAGE_BYTES = 4 * 1024 * 1024

export interface Person {
  account: { id: AccountId; organizationId: bigint }
  userId: string
  /** null: not a member */
  memberId: bigint | null
  /** of the object, as text */
  beginning: string
}

/** Null: nothing is stored about the person. */
export async function findPerson(
  database: Queryable,
  account: Person['account'],
  userId: string,
): Promise<Person | null> {
  const values = [account.id, userId]
  const [found] = await database.query<Pick<Person, 'memberId' | 'beginning'>>(selectSummary, values)
  return found === undefined ? null : { account, userId, ...found }
}

/** @param record stores the entry of the activity log, before the first part of a person */
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
  yield { text: person.beginning }
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
