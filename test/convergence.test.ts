/**
 * The law: what an event does to a member is commutative and idempotent. Any history of any kinds, shuffled, repeated,
 * split over deliveries and over two instances at once, with an erasure at any point, ends in the same members.
 */
import fc from 'fast-check'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { lineEvent, ulid } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from './support/database.ts'
import { type Service, startApp } from './support/service.ts'

let databases: Database[]
let services: Service[]

beforeAll(async () => {
  const { database, connection } = await createTestDatabase()
  const second = new PostgresDatabase(connection, () => undefined)
  second.markReady()
  databases = [database, second]
  services = await Promise.all(databases.map((each) => startApp(each)))
})
afterAll(async () => {
  await Promise.all(services.map(({ app }) => app.close()))
  await Promise.all(databases.map((database) => database.close()))
})

const PEOPLE = ['Uann', 'Uben', 'Ucat'].map((name) => name.padEnd(33, '0').replace(/[^U0-9a-f]/g, 'a'))
const PAST = Date.now() - 3_600_000

/** One thing that a source tells: how to tell it to a tenant, as often as one likes. */
interface Telling {
  about: string
  kind: string
  tell: (service: Service, tenant: Tenant) => Promise<{ status: number; text: string }>
}

const LINE_KINDS = [
  'follow',
  'unfollow',
  'message',
  'postback',
  'beacon',
  'memberJoined',
  'memberLeft',
  'somethingNew',
] as const

const step = fc.record({
  kind: fc.constantFrom(...LINE_KINDS, 'chat', 'page'),
  person: fc.nat({ max: PEOPLE.length - 1 }),
  other: fc.nat({ max: PEOPLE.length - 1 }),
  offset: fc.integer({ min: 0, max: 5 }),
  status: fc.constantFrom('open', 'resolved', 'pending'),
  salt: fc.integer({ min: 0, max: 9_999 }),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

function toTelling(
  { kind, person, other, offset, status, salt }: Step,
  index: number,
  from: number,
): Telling {
  const [userId, otherId] = [PEOPLE[person] as string, PEOPLE[other] as string]
  const at = from + offset
  const id = `${index}-${salt}-${at}`
  if (kind === 'chat') {
    const webhook = {
      event: 'conversation_updated',
      id: index,
      status,
      contact_inbox: { source_id: userId },
      channel: 'Channel::Line',
      updated_at: at / 1000,
    }
    return {
      about: userId,
      kind,
      tell: (service, tenant) => service.chat(tenant, webhook, { 'x-chatwoot-delivery': id }),
    }
  }
  if (kind === 'page') {
    const page = {
      type: 'page',
      userId,
      messageId: id,
      timestamp: new Date(Math.min(at, Date.now())).toISOString(),
    }
    return { about: userId, kind, tell: (service, tenant) => service.track(tenant, [page]) }
  }
  const webhookEventId = `${ulid(at).slice(0, 10)}${String(index).padStart(6, '0')}${String(salt).padStart(10, '0')}`
  const members = [
    { type: 'user', userId },
    { type: 'user', userId: otherId },
  ]
  const fields =
    kind === 'memberJoined'
      ? { source: { type: 'group', groupId: 'C1' }, joined: { members } }
      : kind === 'memberLeft'
        ? { source: { type: 'room', roomId: 'R1' }, left: { members } }
        : { source: { type: 'user', userId } }
  const event = lineEvent(kind, null, { ...fields, timestamp: at, webhookEventId })
  return { about: userId, kind, tell: (service, tenant) => service.deliver(tenant, [event]) }
}

async function tellAll(tenant: Tenant, tellings: Telling[], atOnce: number): Promise<void> {
  for (let start = 0; start < tellings.length; start += atOnce) {
    const answers = await Promise.all(
      tellings
        .slice(start, start + atOnce)
        .map((telling, i) => telling.tell(services[i % services.length] as Service, tenant)),
    )
    for (const { status, text } of answers) expect(status, text).toBe(200)
  }
}

/** What clients see of the audience, without what belongs to the row and not to the history. */
async function viewOf(tenant: Tenant) {
  const members = await (services[0] as Service).members(tenant)
  return members
    .map(({ id: _, createdAt: __, updatedAt: ___, ...state }) => state)
    .sort((a, b) => a.userId.localeCompare(b.userId))
}

async function erase(tenant: Tenant, userId: string): Promise<number> {
  const [service] = services as [Service]
  const member = await service.member(tenant, userId)
  if (member === undefined) return 404
  return (await service.call('DELETE', `/api/audience/${member.id}`, { headers: tenant.headers })).status
}

/** Shuffles by numbers that fast-check gives, so that a failure can be repeated. */
function shuffle<T>(items: T[], next: (below: number) => number): T[] {
  const rest = [...items]
  return items.map(() => rest.splice(next(rest.length), 1)[0] as T)
}

const history = fc.array(step, { minLength: 1, maxLength: 12 })
const chances = fc.infiniteStream(fc.nat({ max: 1_000_000 }))
const picker = (chance: Iterator<number>) => (below: number) => (chance.next().value as number) % below

it('any history, shuffled, repeated, split and told to two instances at once, ends in the same members', async () => {
  await fc.assert(
    fc.asyncProperty(history, chances, async (steps, chance) => {
      const next = picker(chance)
      const tellings = steps.map((each, i) => toTelling(each, i, PAST))
      const [straight, shuffled] = [
        await addTenant(databases[0] as PostgresDatabase),
        await addTenant(databases[0] as PostgresDatabase),
      ]
      await tellAll(straight, tellings, 1)
      const repeated = [
        ...tellings,
        ...tellings.filter(() => next(2) === 0),
        ...tellings.filter(() => next(4) === 0),
      ]
      await tellAll(shuffled, shuffle(repeated, next), 1 + next(8))
      expect(await viewOf(shuffled)).toEqual(await viewOf(straight))
    }),
    { numRuns: 60, endOnFailure: true },
  )
})

it('and an erasure at any point leaves exactly what came after it', async () => {
  await fc.assert(
    fc.asyncProperty(history, history, chances, async (before, after, chance) => {
      const next = picker(chance)
      const old = before.map((each, i) => toTelling(each, i, PAST))
      // Beyond the erasure's time, whenever that will be; tracking cannot speak of the future, so it stays out.
      const young = after
        .filter(({ kind }) => kind !== 'page')
        .map((each, i) => toTelling(each, 100 + i, Date.now() + 60_000))
      const erased = PEOPLE[0] as string
      const first = toTelling(
        { kind: 'message', person: 0, other: 0, offset: 0, status: 'open', salt: 0 },
        99,
        PAST,
      )

      const straight = await addTenant(databases[0] as PostgresDatabase)
      await tellAll(straight, [first, ...old], 1)
      expect(await erase(straight, erased)).toBe(204)
      await tellAll(straight, young, 1)

      const shuffled = await addTenant(databases[0] as PostgresDatabase)
      const mixed = shuffle([...old, ...old.filter(() => next(2) === 0)], next)
      const cut = next(mixed.length + 1)
      await tellAll(shuffled, [first, ...mixed.slice(0, cut)], 1 + next(4))
      expect(await erase(shuffled, erased)).toBe(204)
      await tellAll(
        shuffled,
        shuffle([...mixed.slice(cut), first, ...young, ...young.filter(() => next(2) === 0)], next),
        1 + next(8),
      )
      expect(await viewOf(shuffled)).toEqual(await viewOf(straight))
    }),
    { numRuns: 40, endOnFailure: true },
  )
})
