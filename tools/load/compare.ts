/** Compares a book with what the service returns and what the database holds, while nothing is in flight. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Member } from '../../src/audience/member.ts'
import type { Database } from '../../src/postgres/database.ts'
import { unnamed } from '../../src/postgres/statement.ts'
import type { Book, Person } from './book.ts'
import type { Reader } from './reader.ts'

/** Endpoints: a lease of 30 s of a killed process, and repetitions after 5 s and 10 s, each with up to 50 % more. */
const DELIVERY_LIMIT_MS = 120_000
/** Profiles of the newest members take some seconds. */
const FEED_LIMIT_MS = 30_000
const POLL_MS = 500
/** The newest erased people, for whom the content of all events is read. */
const READ_FOR_MAX = 5

/** One line per discrepancy. */
export async function findDiscrepancies(book: Book, reader: Reader, database: Database): Promise<string[]> {
  return [
    ...compareMembers(book, await reader.stream()),
    ...(await waitForNone(FEED_LIMIT_MS, () => compareFeed(reader))),
    ...(await findErasedAndUnsent(book, database)),
    ...(await waitForNone(DELIVERY_LIMIT_MS, async () => findUndelivered(book))),
  ]
}

/** For what becomes right within a time. */
async function waitForNone(limitMs: number, find: () => Promise<string[]>): Promise<string[]> {
  for (const deadline = Date.now() + limitMs; ; await sleep(POLL_MS)) {
    const found = await find()
    if (found.length === 0 || Date.now() > deadline) return found
  }
}

function compareMembers(book: Book, members: Member[]): string[] {
  const found = new Set(members.map(({ userId }) => userId))
  const missing = [...book.people.values()].filter(({ isMember, userId }) => isMember && !found.has(userId))
  return [
    ...(found.size < members.length ? ['a member appears twice in a stream'] : []),
    ...missing.map(({ userId }) => `${userId} was acknowledged, and is not a member`),
    ...members.flatMap((member) => compareMember(book, member)),
  ]
}

function compareMember(book: Book, member: Member): string[] {
  const { userId, eventCount, relationship, version, conversation, attributes } = member
  const person = book.people.get(userId)
  if (person === undefined) {
    return [`${userId} is a member, but ${book.erased.has(userId) ? 'was erased' : 'is unknown'}`]
  }
  const expected = [person.events, person.relationship.state, person.conversation.status, person.updates + 1]
  const want = JSON.stringify([...expected, person.updates || null])
  const count = (attributes as { count?: number }).count ?? null
  const have = JSON.stringify([eventCount, relationship, conversation?.status ?? null, version, count])
  return want === have ? [] : [`${userId}: acknowledged ${want}, stored ${have}`]
}

/** Profiles still change members, and a walk leaves a member that changes meanwhile to the next one. */
async function compareFeed(reader: Reader): Promise<string[]> {
  await reader.feed()
  const members = await reader.stream()
  const stale = members.filter(({ id, version, relationship }) => {
    const copied = reader.copy.get(id)
    return copied?.version !== version || copied.relationship !== relationship
  })
  const ghosts = reader.copy.size - members.length
  return [
    ...stale.map(({ userId }) => `the delta feed missed a change of ${userId}`),
    ...(ghosts > 0 ? [`the delta feed has ${ghosts} members more than the account`] : []),
  ]
}

/** $1 erased user ids text[]; $2 those of them whose ids must not be in any content text[]; $3 unsent messages text[] */
const SELECT_LEFT = `
  select user_id || ' was erased, and is a member' as found from audience_member where user_id = any ($1)
   union all select user_id || ' was erased, and has tracked activity' from tracked_activity where user_id = any ($1)
   union all select user_id || ' was erased, and has an event' from event where user_id = any ($1)
   union all select user_id || ' was erased, and has an event of tracking' from tracking_event where user_id = any ($1)
   union all select erased.id || ' was erased, and is in the content of event ' || event.id
               from event join unnest($2::text[]) as erased (id) on position(erased.id in payload) > 0
   union all select 'message ' || message_id || ' was unsent, and has its content'
               from event where message_id = any ($3) and payload is not null`

/** In a session, because after hours it reads gigabytes, which takes longer than a statement of a request may. */
async function findErasedAndUnsent(book: Book, database: Database): Promise<string[]> {
  const erased = [...book.erased.keys()]
  const parameters = [erased, erased.slice(-READ_FOR_MAX), [...book.unsent]]
  const rows = await database.session((session) =>
    session.query<{ found: string }>(unnamed(SELECT_LEFT), parameters),
  )
  return rows.map(({ found }) => found)
}

/** What the endpoints have not received. The content of erased people and unsent messages is sent no more. */
function findUndelivered(book: Book): string[] {
  for (const [eventId, { userId, messageId }] of book.owed) {
    if (!book.people.has(userId) || book.unsent.has(messageId ?? '')) book.owed.delete(eventId)
  }
  const stale = (person: Person) => {
    const { received, relationship, updates, conversation } = person
    return (
      person.isMember &&
      (received?.relationship !== relationship.state ||
        received.version !== updates + 1 ||
        (received.conversation?.status ?? null) !== conversation.status)
    )
  }
  const members = book.account.membersSecret === undefined ? [] : [...book.people.values()].filter(stale)
  return [
    ...[...book.owed].map(([eventId, { userId }]) => `the endpoint misses event ${eventId} of ${userId}`),
    ...[...book.owedErasures].map((id) => `the endpoint misses the erasure of member ${id}`),
    ...members.map(
      ({ userId, received }) => `the endpoint has an old state of ${userId}: ${JSON.stringify(received)}`,
    ),
  ]
}
